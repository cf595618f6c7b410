"""`decide`: whether a decode step runs on the kernels, once for all its target layers (and once for the
draft's).

Invariants
 - A pure function of the plan and of metadata that every rank of a step holds alike: the kernels wait for
   their peers, so ranks must not decide differently. What is a rank's own (how a tensor lies in memory) is
   no reason: a host copies such inputs.
 - The decision holds for the whole step. A layer never asks again, so a source that ran whole cannot be
   followed by a consumer on the host's attention.
 - What only a whole layer needs (windows, compressed cache, the stack's entry) leaves FFN launches alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..unsupported import Code, Reason
from .builds import width_reason
from .codes import ServeCode, listed, reason
from .host import Path
from .model import LayerPath, ModelPlan, reason_data

Graph = Literal["none", "full", "piecewise"]
Metadata = Literal["none", "split", "layers"]
ENTRY_DIMS = {False: 2, True: 3}
"""Dimensions of the first layer's input: the target's embedding, the draft's in its streams (runtime.md
2.3)."""


@dataclass(frozen=True)
class StepFacts:
    """What a host knows of a step before its first layer; the defaults are an ordinary decode step.

    `rows` are physical (padded ones too), `graph` the mode of the forward (a FULL capture runs as `none` or
    `full`), `metadata` what the forward context carries (none in a profile run, split under dual-batch
    overlap). `decodes` and `decode_tokens` of None are `rows`. `missing` and `uncompressed` name layers
    without window or compressed-cache metadata, `window` is the width of the window lists (None: as
    planned), `lists` whether they, their lengths and the rows' requests are all there, `entry_dims` the
    dimensions of the input of a layer that has no residual yet.
    """

    rows: int
    draft: bool = False
    graph: Graph = "none"
    context: bool = True
    metadata: Metadata = "layers"
    prefills: int = 0
    decodes: int | None = None
    decode_tokens: int | None = None
    missing: tuple[int, ...] = ()
    uncompressed: tuple[int, ...] = ()
    window: int | None = None
    lists: bool = True
    entry_dims: int | None = None


@dataclass(frozen=True)
class Decision:
    """The answer for one step: which of the two kernel paths it takes, and every reason against the
    others."""

    rows: int
    draft: bool
    whole: bool
    ffn: bool
    reasons: tuple[Reason, ...]

    def path(self, planned: Path) -> Path:
        """The path in this step of a layer that is planned on `planned`."""
        taken = {Path.WHOLE: self.whole, Path.FFN: self.ffn, Path.STOCK: True}[planned]
        return planned if taken else Path.STOCK

    @property
    def line(self) -> str:
        """The debug line of a step that is not all on its planned paths; empty for one that is."""
        if not self.reasons:
            return ""
        what = "draft step" if self.draft else "step"
        kept = " (FFN launches run)" if self.ffn else ""
        why = "; ".join(f"{r.code}: {r.text}" for r in self.reasons)
        return f"{what} of {self.rows} rows on vLLM's path{kept}: {why}"

    def data(self) -> dict[str, object]:
        """The decision as JSON values."""
        return {
            "rows": self.rows, "draft": self.draft, "whole": self.whole, "ffn": self.ffn,
            "reasons": [reason_data(r) for r in self.reasons],
        }  # fmt: skip


def decide(plan: ModelPlan, facts: StepFacts) -> Decision:
    """Route a step: every reason against it, those of whole layers alone apart."""
    layers = [one for one in plan.layers if one.draft is facts.draft and one.path is not Path.STOCK]
    common = [*_step_reasons(plan, facts, layers)]
    own = [*_whole_reasons(plan, facts, [one for one in layers if one.path is Path.WHOLE])]
    ffn = any(one.path is Path.FFN for one in layers)
    whole = any(one.path is Path.WHOLE for one in layers)
    return Decision(
        facts.rows,
        facts.draft,
        whole=whole and not common and not own,
        ffn=ffn and not common,
        reasons=tuple(common + own),
    )


def _step_reasons(plan: ModelPlan, facts: StepFacts, layers: list[LayerPath]) -> Iterable[Reason]:
    """Reasons against every launch (runtime.md 2.3, 1 to 7)."""
    if not layers:
        yield reason(ServeCode.NO_KERNEL_LAYERS)
    yield from _width_reasons(plan, facts)
    if facts.graph == "piecewise":
        yield reason(ServeCode.PIECEWISE)
    if not facts.context:
        yield reason(ServeCode.NO_CONTEXT)
    elif facts.metadata != "layers":
        yield reason(ServeCode.NO_METADATA if facts.metadata == "none" else ServeCode.SPLIT_STEP)
    else:
        yield from _metadata_reasons(facts, layers)


def _width_reasons(plan: ModelPlan, facts: StepFacts) -> Iterable[Reason]:
    built = plan.draft_widths if facts.draft else plan.widths
    if not plan.limit:
        return  # nothing is known of such a GPU
    if not 1 <= facts.rows <= plan.limit:
        text = f"{facts.rows} rows on {plan.host.arch}: a step has 1 to {plan.limit} rows ({plan.limit_why})"
        most = "1 or more" if facts.rows < 1 else f"at most {plan.limit}"
        yield Reason(Code.ROWS_OUT_OF_RANGE, text, f"take {most} rows (--max-num-seqs, fewer drafts)")
    elif built is not None and facts.rows not in built:
        yield width_reason(plan.host, [facts.rows], built, plan.limit, draft=facts.draft)


def _metadata_reasons(facts: StepFacts, layers: list[LayerPath]) -> Iterable[Reason]:
    if without := sorted({one.layer for one in layers} & set(facts.missing)):
        yield reason(ServeCode.LAYER_METADATA, layers=listed(without))
    if facts.prefills:
        yield reason(ServeCode.PREFILLS, prefills=facts.prefills, rows=facts.rows)
    if facts.decodes == 0:
        yield reason(ServeCode.NO_DECODES)
    if facts.decode_tokens is not None and facts.decode_tokens > facts.rows:
        yield reason(ServeCode.DECODE_TOKENS, tokens=facts.decode_tokens, rows=facts.rows)


def _whole_reasons(plan: ModelPlan, facts: StepFacts, layers: list[LayerPath]) -> Iterable[Reason]:
    """Reasons against whole layers alone."""
    if not layers:
        return
    dims, want = facts.entry_dims, ENTRY_DIMS[facts.draft]
    if dims not in (None, want):
        yield reason(ServeCode.STAGE_ENTRY, dims=dims, want=want)
    if not facts.context or facts.metadata != "layers":
        return  # what follows is in the metadata
    read = {one.layer for one in layers if one.kind is not None and one.kind.ratio}
    if without := sorted(read & set(facts.uncompressed)):
        yield reason(ServeCode.COMPRESSED_METADATA, layers=listed(without))
    window = plan.windows[facts.draft]
    if facts.window not in (None, window):
        yield reason(ServeCode.WINDOW_WIDTH, width=facts.window, want=window)
    if not facts.lists:
        yield reason(ServeCode.WINDOW_METADATA)


class Counts:
    """Steps by what was decided, a counter a reason. Only steps whose host code runs are seen: the replay
    of a captured graph asks nobody (the device's epoch counts those)."""

    def __init__(self) -> None:
        self.steps = self.taken = 0
        self.reasons: Counter[str] = Counter()

    def add(self, decision: Decision) -> Decision:
        """Count a decision and hand it on."""
        self.steps += 1
        self.taken += decision.whole or decision.ffn
        self.reasons.update({str(r.code) for r in decision.reasons})
        return decision

    def data(self) -> dict[str, object]:
        """The counters as JSON values, reasons by name."""
        return {"steps": self.steps, "taken": self.taken, "reasons": dict(sorted(self.reasons.items()))}
