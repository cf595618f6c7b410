"""Progress of a run: one line a step, with a live count where a step takes long.

On a terminal the current step spins and disappears; elsewhere (a pipe, CI) each step is a line on
stderr when it starts, so that a log shows what is being waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


class Steps:
    """Steps of one kernel's run; `title` is its build id."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.console = Console(stderr=True)
        self._status: Status | None = None

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show `what` while the block runs."""
        text = f"{self.title}: {what}"
        if not self.console.is_terminal:
            self.console.print(text, highlight=False)
            yield
            return
        with self.console.status(text) as self._status:
            yield
        self._status = None

    def count(self, instructions: int) -> None:
        """How far the device is: wave instructions executed."""
        if self._status is not None:
            self._status.update(f"{self.title}: execute, {instructions / 1e6:.0f} M wave instructions")
