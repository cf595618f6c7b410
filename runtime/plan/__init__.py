"""Pure-integer planning: every number of a kernel, computed from specs, each with its reason.

Read in this order: `dims` (sizes of a rank), `strategy` (choices from capabilities), `width` (rows a GEMV
pass), `placement` and `waits` (tasks, workgroups, hand-offs), `lds`, `scratch` and `lines` (memory), `tags`,
`abi`, `traffic` and `cost`, `support` (which keys have a plan), and `k1`, which puts one plan together.
No torch, no FlyDSL, no float; nothing here knows a GPU's name.
"""

from ... import __version__ as __version__
from .abi import Abi, Argument
from .base import KernelPlan
from .deployment import Deployed, check_deployment, deployment_reasons
from .export import refusal_json, to_data, to_json
from .ffn.launch import FfnPlan
from .k1.launch import K1Plan
from .k2.launch import K2Plan
from .keylist import KeyListPlan
from .keys import BadBuildId, BuildKey
from .layer import LayerPlan, plan_layer
from .planner import plan_ffn, plan_k1, plan_k2, plan_of
from .shipped import at_widths, is_draft, shipped
from .support import Routing, SpecSet, key_reasons, model_of, nearest, routing_reasons
from .unsupported import Class, Code, Phase, Reason, ReasonCode, Unsupported
from .width import WidthReport, width_report

__all__ = [
    "Abi",
    "Argument",
    "BadBuildId",
    "BuildKey",
    "Class",
    "Code",
    "Deployed",
    "FfnPlan",
    "K1Plan",
    "K2Plan",
    "KernelPlan",
    "KeyListPlan",
    "LayerPlan",
    "Phase",
    "Reason",
    "ReasonCode",
    "Routing",
    "SpecSet",
    "Unsupported",
    "WidthReport",
    "at_widths",
    "check_deployment",
    "deployment_reasons",
    "is_draft",
    "key_reasons",
    "model_of",
    "nearest",
    "plan_ffn",
    "plan_k1",
    "plan_k2",
    "plan_layer",
    "plan_of",
    "refusal_json",
    "routing_reasons",
    "shipped",
    "to_data",
    "to_json",
    "width_report",
]
