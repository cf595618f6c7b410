"""Kernels with bugs planted in the source of their stages, and weights with mistakes in them.

An edited kernel is compiled from a copy of `mono/` with another line in it; all else is the real thing.
Weights are altered before the device's copies are made, so that a mistake does not depend on a layout; the
reference keeps the right ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from benches import Weights, specs

import flymono
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.diff import path_of
from flymono.gen.linker import find_linker
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.reference.layer_weights import BackWeights, Expert, Experts, FfnWeights
from flymono.runtime.plan import KernelPlan


@dataclass(frozen=True)
class Edit:
    """`old` in a file of mono/ is `new` instead."""

    file: str
    old: str
    new: str


def planted_tree(folder: Path, edits: Sequence[Edit]) -> Path:
    """A checkout's `src` in `folder`, in which the edits are made and all else is this source tree."""
    package, real = folder / "src" / "flymono", Path(flymono.__file__).parent
    package.mkdir(parents=True)
    for path in real.iterdir():
        if path.name == "mono":
            shutil.copytree(path, package / "mono", ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_dir():
            (package / path.name).symlink_to(path.resolve())
        else:
            shutil.copy(path, package / path.name)
    for edit in edits:
        file = package / "mono" / edit.file
        text = file.read_text()
        assert text.count(edit.old) == 1, f"{edit.file} has {edit.old!r} {text.count(edit.old)} times"
        file.write_text(text.replace(edit.old, edit.new))
    return folder


def planted(plan: KernelPlan, edits: Sequence[Edit], folder: Path) -> Artefact:
    """The plan's kernel with the edits. How many matrix instructions it has is not checked: a bug may skip
    some."""
    tree = planted_tree(folder, edits)
    unit = unit_of(specs(), plan.key)
    unit = replace(unit, expect=replace(unit.expect, mfma=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tree / "src")  # the compile server takes its flymono from there
        patch.setenv("PYTHONPATH", path_of(tree))
        with Compiler(find_linker(folder), seconds=300) as compiler:
            return build(unit, Settings(Store(folder / "store")), compiler)[0]


# ------------------------------------------------------------------ bugs of the source

GATE_UP_EXCHANGED = Edit(
    "ug_activate.py", "gate, up = parts[0][0], parts[0][1]", "up, gate = parts[0][0], parts[0][1]"
)
WEIGHT_BEFORE_ACTIVATION = (
    Edit("ug_activate.py", "from . import fp4, lanes, mailbox", "from . import fp4, lanes, mailbox, table"),
    Edit(
        "ug_activate.py", "h = _activation(c, *_sums(c, p, pick))",
        "by = ll.lds_load(c.lds, table.pick_at(c, position + pick) * 4 + f.lds.weights)\n"
        "        h = _activation(c, *[v * by for v in _sums(c, p, pick)])",
    ),
)  # fmt: skip
EXPERT_DROPPED = Edit("down.py", "for q in range_constexpr(k):", "for q in range_constexpr(k - 1):")
RANKS_BACKWARDS = Edit(
    "peers.py", "words = mailbox.poll(c, site, spots, box)", "words = mailbox.poll(c, site, spots, box)[::-1]"
)
SINK_IN_NUMERATOR = Edit(
    "combine.py", "sums = [fx.Vector.filled(2, 0.0, Float32) for _ in range(4)]",
    "sums = [fx.Vector.from_elements([whole, whole], Float32) for _ in range(4)]",
)  # fmt: skip
WINDOW_ONE_SHORT = Edit(
    "keytable.py", 'live.select(ll.global_load(a["swa_lens"], token * 4, constant=True), Int32(0))',
    'live.select(ll.global_load(a["swa_lens"], token * 4, constant=True) - 1, Int32(0))',
)  # fmt: skip
RECORD_READ_AS_FNUZ = Edit(
    "records.py", 'if c.build.how.fp8 == "fnuz" and shape.ratio > 0:', "if shape.ratio < 0:"
)
PASS_SKIPPED = Edit(
    "passes.py", "    multiply(live_rows)\n", "    if first + width <= count:\n        multiply(live_rows)\n"
)  # the hand-offs of a ragged pass are made, with the sums of the pass before it
SHARED_PASS_SKIPPED = Edit(
    "down.py", "for p in range(0, (shape.rows + width - 1) // width, 1, unroll=1)",
    "for p in range(0, shape.rows // width, 1, unroll=1)",
)  # fmt: skip

# ------------------------------------------------------------------ mistakes in weights

Mistake = Callable[[Weights], Weights]


def in_back(change: Callable[[BackWeights], BackWeights]) -> Mistake:
    """A mistake in the attention back's weights of every rank."""
    return lambda w: replace(w, back=tuple(change(own) for own in w.back))


def in_ffn(change: Callable[[FfnWeights], FfnWeights]) -> Mistake:
    """A mistake in the FFN half's weights of every rank."""
    return lambda w: replace(w, ffn=tuple(change(own) for own in w.ffn))


@dataclass(frozen=True)
class _Altered:
    """Experts with a mistake."""

    right: Experts
    change: Callable[[Expert], Expert]

    def expert(self, number: int) -> Expert:
        return self.change(self.right.expert(number))


def in_experts(change: Callable[[Expert], Expert]) -> Mistake:
    """A mistake in every routed expert."""
    return in_ffn(lambda w: replace(w, experts=_Altered(w.experts, change)))


WO_A_SCALES = in_back(lambda w: replace(w, woa_s=w.woa_s.roll(1, 1)))
WO_B_SCALES = in_back(lambda w: replace(w, wob_s=w.wob_s.roll(1, 1)))
SHARED_SCALES = in_ffn(lambda w: replace(w, sgu_s=w.sgu_s.roll(1, 1)))
UP_NIBBLES = in_experts(lambda e: replace(e, w1=e.w1 >> 4 | e.w1 << 4, w3=e.w3 >> 4 | e.w3 << 4))
UP_SCALES = in_experts(lambda e: replace(e, w1_s=e.w1_s.roll(1, 1)))
DOWN_NIBBLES = in_experts(lambda e: replace(e, w2=e.w2 >> 4 | e.w2 << 4))
DOWN_SCALES = in_experts(lambda e: replace(e, w2_s=e.w2_s.roll(1, 1)))
