"""Copies that are made while a host loads: around its own processing of each module, once, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import seeded_layer
from flymono.runtime.plan.strategy import strategy_of
from flymono.runtime.vllm import loading
from flymono.runtime.vllm.loading import Copies
from flymono.runtime.weights import WeightsError, held_copies
from flymono.runtime.weights.held_names import ATTENTION, SHARED
from flymono.specs import load
from flymono.specs.schema import ModelSpec

from .holding import Held, holder, placed, plain_experts, small_model

TP, RANK, PICKED = 2, 1, (2, 5)
ROUTED = "ffn.experts.routed_experts"


class Host:
    """A layer whose modules a host processes one by one: it frees the plain experts' scales."""

    def __init__(self, held: Held) -> None:
        self.layer, self.processed = placed(held), list[str]()
        self.layer.attn.layer_id = 5
        self.paths = (ROUTED, *SHARED.values(), *ATTENTION.values())
        for path in self.paths:
            own = SimpleNamespace(
                process_weights_after_loading=lambda module, path=path: self._one(path, module)
            )
            self.module(path).quant_method = own

    def _one(self, path: str, module: Any) -> None:
        self.processed.append(path)
        if path == ROUTED:
            module.w13_weight_scale.data.zero_()

    def module(self, path: str) -> Any:
        found: Any = self.layer
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def load(self) -> None:
        for path in self.paths:
            module = self.module(path)
            module.quant_method.process_weights_after_loading(module)


@pytest.fixture(scope="module")
def sizes(full: ModelSpec) -> LayerSizes:
    return LayerSizes.of(small_model(full), TP)


@pytest.fixture
def held(full: ModelSpec, sizes: LayerSizes) -> Held:
    whole = seeded_layer(small_model(full), 5, seed=3)
    return holder(whole, TP, RANK, dequantised=True) | plain_experts(whole, TP, RANK, sizes, PICKED)


def copies_at(host: Host, sizes: LayerSizes) -> Copies:
    strategy = strategy_of(load().arch["gfx942"])
    made = Copies(host.layer, sizes, strategy, attention=True, where=("gfx942", TP))
    made.hook()
    return made


def test_hooks_make_the_copies_of_the_plain_tensors(held: Held, sizes: LayerSizes) -> None:
    want = held_copies({n: t.clone() for n, t in held.items()}, sizes, "fnuz", "tile_major", selected=PICKED)
    host = Host(held)
    copies = copies_at(host, sizes)
    host.load()
    assert host.processed == list(host.paths) and not copies.broken
    found = copies.weights()
    for part in ("k1", "back", "ffn"):
        for name, value in getattr(want, part).items():
            assert torch.equal(getattr(found, part)[name].view(torch.uint8), value.view(torch.uint8)), name


@pytest.mark.parametrize("where", ["held_copies", "encoded"])
def test_out_of_memory_is_told_by_tensor_and_mended_by_another_load(
    held: Held, sizes: LayerSizes, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The experts' copy comes before the host touches them, a linear's before any of ours is written."""
    host = Host(held)
    copies = copies_at(host, sizes)
    before = {n: t.clone() for n, t in held.items()}
    with monkeypatch.context() as patched:

        def full_up(*_: object, **__: object) -> None:
            raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB.\nmore")

        patched.setattr(loading, where, full_up)
        with pytest.raises(WeightsError) as caught:
            host.load()
    what = "routed experts" if where == "held_copies" else next(iter(SHARED))
    assert f"layer 5, {what}" in str(caught.value)
    assert "Tried to allocate 2.00 GiB." in str(caught.value) and "plan memory" in caught.value.render()
    assert [str(r.code) for r in copies.broken.values()] == ["out-of-memory"]
    if where == "held_copies":
        assert host.processed == [] and copies.nbytes == 0
        assert all(torch.equal(t, before[n]) for n, t in held.items())
    else:
        assert host.processed[0] == ROUTED and not any(copies.parts[p] for p in ("k1", "back"))
        for name, tensor in before.items():
            held[name].copy_(tensor)
    host.load()
    assert not copies.broken and copies.weights().k1


def test_a_reload_writes_where_the_copies_are(held: Held, sizes: LayerSizes) -> None:
    host = Host(held)
    copies, plain = copies_at(host, sizes), {n: t.clone() for n, t in held.items()}
    host.load()
    first = {n: t for part in copies.parts.values() for n, t in part.items()}
    kept = {n: t.clone() for n, t in first.items()}
    for name, tensor in plain.items():
        held[name].copy_(tensor)
    linear = next(iter(SHARED.values()))
    other = host.module(linear)
    other.weight.data.neg_()
    host.load()
    again = {n: t for part in copies.parts.values() for n, t in part.items()}
    assert {n: t.data_ptr() for n, t in first.items()} == {n: t.data_ptr() for n, t in again.items()}
    changed = {n for n, t in again.items() if not torch.equal(t.view(torch.uint8), kept[n].view(torch.uint8))}
    assert changed == {next(iter(SHARED))}


def test_a_load_that_fails_is_no_reload(held: Held, sizes: LayerSizes) -> None:
    """Linears are copied before the experts are found unfit, in the first load too."""
    host = Host(held)
    host.paths = (*SHARED.values(), *ATTENTION.values(), ROUTED)
    copies = copies_at(host, sizes)
    plain = {n: t.clone() for n, t in held.items()}
    for code in ("weights-unfit", "reload-failed"):
        held[f"{ROUTED}.w13_weight"][PICKED[1], sizes.inter] = 1  # a byte where padding must be
        with pytest.raises(WeightsError, match="padding are not zero"):
            host.load()
        assert [str(r.code) for r in copies.broken.values()] == [code]
        for again in range(2):  # what the host holds is the checkpoint's again; then for the next round
            for name, tensor in plain.items():
                held[name].copy_(tensor)
            if not again:
                host.load()
        assert not copies.broken and copies.weights().k1
