"""What the options of every run have: what runs where, on whose weights, and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunOptions:
    """Options of any run; None means "the default, or what another option says"."""

    arch: str
    tp: int | None = None
    rows: int = 6
    layer: int | None = None
    weights: Path | None = None
    seed: int = 0
    order: str = "linear"
    mfma: str = "exact"
    trans: str = "exact"
    check: bool = True
    inputs: Path | None = None
    save: Path | None = None
    report: Path | None = None
    json: bool = False
    verbose: bool = False

    def device(self) -> dict[str, object]:
        """The emulator's options that differ from its defaults, and the seed."""
        stated = {"order": self.order, "mfma": self.mfma, "trans": self.trans, "check": self.check}
        defaults = {"order": "linear", "mfma": "exact", "trans": "exact", "check": True}
        return {"seed": self.seed} | {k: v for k, v in stated.items() if v != defaults[k]}
