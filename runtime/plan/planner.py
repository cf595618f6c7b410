"""`plan_of(specs, key)`: the plan of a build of any kind, or every reason why it has none."""

from __future__ import annotations

from ...specs.schema import ArchSpec, ModelSpec
from .base import KernelPlan
from .ffn.launch import FfnPlan, make_ffn
from .k1.launch import K1Plan, make_k1
from .k2.launch import K2Plan, make_k2
from .keylist import make_keylist
from .keys import BuildKey
from .support import SpecSet, key_reasons, model_of, nearest
from .unsupported import Unsupported
from .width import WidthReport, width_report


def plan_of(specs: SpecSet, key: BuildKey) -> KernelPlan:
    """The plan of `key`, of its kind's class; Unsupported with every reason and the nearest build."""
    model, arch, report = _admitted(specs, key)
    if key.kind == "k1":
        return make_k1(model, arch, key, report)
    if key.kind == "k2":
        return make_k2(model, arch, key, report)
    if key.kind == "keylist":
        return make_keylist(model, arch, key, report)
    return make_ffn(model, arch, key, report)


def plan_k1(specs: SpecSet, key: BuildKey) -> K1Plan:
    """The plan of a K1 build; Unsupported as `plan_of`."""
    plan = plan_of(specs, key)
    assert isinstance(plan, K1Plan), key.id
    return plan


def plan_k2(specs: SpecSet, key: BuildKey) -> K2Plan:
    """The plan of a K2 build; Unsupported as `plan_of`."""
    plan = plan_of(specs, key)
    assert isinstance(plan, K2Plan), key.id
    return plan


def plan_ffn(specs: SpecSet, key: BuildKey) -> FfnPlan:
    """The plan of an FFN launch; Unsupported as `plan_of`."""
    plan = plan_of(specs, key)
    assert isinstance(plan, FfnPlan), key.id
    return plan


def _admitted(specs: SpecSet, key: BuildKey) -> tuple[ModelSpec, ArchSpec, WidthReport]:
    reasons = key_reasons(specs, key)
    if reasons:
        near = nearest(specs, key)
        raise Unsupported(key.id, tuple(reasons), near.id if near else None)
    model, arch = model_of(specs, key.model), specs.arch[key.arch]
    assert model is not None
    return model, arch, width_report(model, arch)
