"""What the options of every run have: what runs where, on whose weights, and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROWS = 6  # one request with its five drafts


@dataclass(frozen=True)
class RunOptions:
    """Options of any run; None means "the default, or what another option says"."""

    arch: str
    tp: int | None = None
    rows: int | None = None
    layer: int | None = None
    weights: Path | None = None
    seed: int = 0
    order: str = "linear"
    mfma: str = "exact"
    trans: str = "exact"
    check: bool = True
    device: str = "emulator"
    timeline: bool = False
    inputs: Path | None = None
    save: Path | None = None
    report: Path | None = None
    json: bool = False
    verbose: bool = False

    @property
    def width(self) -> int:
        """Rows of the step: those given, else the default's."""
        return DEFAULT_ROWS if self.rows is None else self.rows

    def emulator_options(self) -> dict[str, object]:
        """The emulator's options that differ from its defaults."""
        stated = {"order": self.order, "mfma": self.mfma, "trans": self.trans, "check": self.check}
        defaults = {"order": "linear", "mfma": "exact", "trans": "exact", "check": True}
        return {k: v for k, v in stated.items() if v != defaults[k]}

    def emulator(self) -> dict[str, object]:
        """What an emulator is made with: these, and the seed."""
        return {"seed": self.seed} | self.emulator_options()
