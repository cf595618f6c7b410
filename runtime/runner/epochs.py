"""When epochs start anew: tags are 32 bits of an epoch that grows with every layer.

A word that was not written for exactly the tags' period would look fresh when they come round. Long before,
all
ranks together let their GPUs come to rest, put zeros where tags are, and go on from epoch 0; nothing moves,
so
captured graphs stay valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from flymono.runtime.plan.tags import DRAIN_EPOCH

EVERY = 1 << 16
"""Steps between two looks at the epoch; a step has some 40 epochs, so a look is never late."""


@dataclass
class Guard:
    """Counts steps, the same on all ranks, and says when to look at the epoch."""

    limit: int = DRAIN_EPOCH
    every: int = EVERY
    steps: int = 0

    def due(self) -> bool:
        """Whether to look after this step."""
        self.steps += 1
        return self.steps % self.every == 0
