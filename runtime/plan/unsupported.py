"""Refusals of the plan: every reason at once, from catalogues of codes.

Invariants
 - A refusal is an answer: `Unsupported` carries all reasons that can be known and, where one exists,
   the nearest key that the plan accepts.
 - A code's meaning never changes; the docs page of refusals is made from `Code` (of builds) and
   `layers.codes.ServeCode` (of servers and steps).
 - Every code says when it can be known (`phase`) and what a server does about it (`klass`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...specs.findings import UserError


class Phase(StrEnum):
    """When a server can know a reason: from its configuration, its loaded weights, its bound caches and
    peer memory, or a step's metadata."""

    CONFIG = "config"
    WEIGHTS = "weights"
    CACHES = "caches"
    STEP = "step"


class Class(StrEnum):
    """What a server does about a reason.

    STOP: it does not start (a lenient one runs the host's path instead). STOCK: the layer runs the host's
    path. FFN: the host's attention, then our FFN launch. STEP: this step runs the host's path.
    """

    STOP = "STOP"
    STOCK = "STOCK"
    FFN = "FFN"
    STEP = "STEP"


class ReasonCode(StrEnum):
    """What every enum of codes answers; it has no members of its own."""

    @property
    def about(self) -> str:
        """One sentence for the docs page."""
        raise NotImplementedError

    @property
    def phase(self) -> Phase:
        """When the reason can be known."""
        raise NotImplementedError

    @property
    def klass(self) -> Class:
        """What a server does about it."""
        raise NotImplementedError


class Code(ReasonCode):
    """Why a build or a spec cannot be planned; `about` explains each code in one sentence."""

    KIND_UNKNOWN = "kind-unknown"
    ARCH_UNKNOWN = "arch-unknown"
    MODEL_UNKNOWN = "model-unknown"
    TP_NOT_OFFERED = "tp-not-offered"
    ROWS_OUT_OF_RANGE = "rows-out-of-range"
    ROWS_LIMIT_TOO_HIGH = "rows-limit-too-high"
    RATIO_UNKNOWN = "ratio-unknown"
    WINDOW_UNKNOWN = "window-unknown"
    WINDOW_NEEDS_RATIO_0 = "window-needs-ratio-0"
    MODEL_SHAPE = "model-shape"
    GRID_TOO_SMALL = "grid-too-small"
    WORKGROUP_SHAPE = "workgroup-shape"
    GRID_TOO_LARGE = "grid-too-large"
    LAYER_KIND_UNKNOWN = "layer-kind-unknown"
    DRAFT_UNKNOWN = "draft-unknown"
    NOT_OF_THIS_KIND = "not-of-this-kind"
    ROUTING_UNKNOWN = "routing-unknown"
    KV_DTYPE_UNKNOWN = "kv-dtype-unknown"
    LAYOUT_MISFIT = "layout-misfit"
    MFMA_MISSING = "mfma-missing"
    LDS_TOO_SMALL = "lds-too-small"
    PASS_WIDTH_TOO_WIDE = "pass-width-too-wide"
    K_BLOCK_UNFIT = "k-block-unfit"

    @property
    def about(self) -> str:
        """One sentence for the docs page."""
        return _ABOUT[self]

    @property
    def phase(self) -> Phase:
        return Phase.STEP if self is Code.ROWS_OUT_OF_RANGE else Phase.CONFIG

    @property
    def klass(self) -> Class:
        """A build that no GPU of the arch can have stops a server; what one layer is costs that layer."""
        return _KLASS.get(self, Class.STOP)


_ABOUT = {
    Code.KIND_UNKNOWN: "The plan knows no kernel of that kind.",
    Code.ARCH_UNKNOWN: "There is no specs/arch file of that name.",
    Code.MODEL_UNKNOWN: "There is no specs/model file whose prefix the build id starts with.",
    Code.TP_NOT_OFFERED: "The arch spec does not list that tensor-parallel size.",
    Code.ROWS_OUT_OF_RANGE: "A step has at least one row and at most the arch's row limit.",
    Code.ROWS_LIMIT_TOO_HIGH: "The arch spec states a row limit above the one that the plan computes.",
    Code.RATIO_UNKNOWN: "No layer of the model reads a compressed cache of that ratio.",
    Code.WINDOW_UNKNOWN: "The model spec lists no window list of that width.",
    Code.WINDOW_NEEDS_RATIO_0: "Wider window lists exist for draft layers, which read no compressed cache.",
    Code.MODEL_SHAPE: "A size of the model does not divide as the kernels' tiles need it.",
    Code.GRID_TOO_SMALL: "The GPU has too few compute units for the stages to sit side by side.",
    Code.WORKGROUP_SHAPE: "The kernels run workgroups of 8 waves of 64 lanes, which the arch spec denies.",
    Code.GRID_TOO_LARGE: "The arch spec states more workgroups than a GPU can hold at once.",
    Code.LAYER_KIND_UNKNOWN: "No layer of the model has that ratio and that part in the index.",
    Code.DRAFT_UNKNOWN: "A draft build whose ratio or window no draft layer of the model has.",
    Code.NOT_OF_THIS_KIND: "The kernel kind does not depend on that part of the build id.",
    Code.ROUTING_UNKNOWN: "The layer's routing is not the one that the kernels compute.",
    Code.KV_DTYPE_UNKNOWN: "The KV cache's records are not of the one format that kernels read and write.",
    Code.LAYOUT_MISFIT: "A region that the build uses is not in the layout it was given, or too small there.",
    Code.MFMA_MISSING: "The arch spec lists no matrix instruction that a stage could use.",
    Code.LDS_TOO_SMALL: "A stage needs more LDS than one workgroup may allocate, at any pass width.",
    Code.PASS_WIDTH_TOO_WIDE: "The pass width that the arch spec states does not fit.",
    Code.K_BLOCK_UNFIT: "The routed gate/up cannot hold x in the K blocks that the arch spec states.",
}


_KLASS = {
    Code.ROWS_OUT_OF_RANGE: Class.STEP,
    # of the attention half alone: the FFN launch does not depend on it
    Code.RATIO_UNKNOWN: Class.FFN,
    Code.WINDOW_UNKNOWN: Class.FFN,
    Code.WINDOW_NEEDS_RATIO_0: Class.FFN,
    Code.LAYER_KIND_UNKNOWN: Class.FFN,
    Code.DRAFT_UNKNOWN: Class.FFN,
    Code.NOT_OF_THIS_KIND: Class.FFN,
    Code.KV_DTYPE_UNKNOWN: Class.FFN,
    # of the FFN half, which both launches have
    Code.ROUTING_UNKNOWN: Class.STOCK,
    Code.LAYOUT_MISFIT: Class.STOCK,
}


@dataclass(frozen=True)
class Reason:
    """One reason of a refusal: what is wrong, with the numbers, and what to do about it."""

    code: ReasonCode
    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text} ({self.fix})"


class Unsupported(UserError):
    """No plan exists. `reasons` holds all of them, `nearest` the id of the closest supported build."""

    def __init__(self, subject: str, reasons: tuple[Reason, ...], nearest: str | None = None) -> None:
        assert reasons, "a refusal needs a reason"
        self.subject, self.reasons, self.nearest = subject, reasons, nearest
        codes = ", ".join(r.code for r in reasons)
        super().__init__(f"{subject} is not supported ({codes})")

    def render(self) -> str:
        """Every reason with its fix, then the nearest supported build."""
        lines = [f"error: {self.subject} is not supported:"]
        lines += [f"  {r.code}: {r.text}\n    fix: {r.fix}" for r in self.reasons]
        lines += [f"  nearest supported build: {self.nearest}"] if self.nearest else []
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Every reason with code, text and fix, and the nearest supported build."""
        reasons = [{"code": str(r.code), "text": r.text, "fix": r.fix} for r in self.reasons]
        return {
            "error": str(self), "unsupported": self.subject, "reasons": reasons, "nearest": self.nearest,
        }  # fmt: skip

    def __reduce__(self) -> tuple[type[Unsupported], tuple[str, tuple[Reason, ...], str | None]]:
        return Unsupported, (self.subject, self.reasons, self.nearest)
