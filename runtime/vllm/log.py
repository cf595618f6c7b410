"""Lines of the log: under vLLM's own logger, each text once a process.

Invariant: nothing here imports vLLM. `vllm` is the name of a logger that vLLM configures.
"""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("vllm.flymono")
PREFIX = "flymono: "
_said: set[tuple[int, str]] = set()


def once(level: int, text: str) -> None:
    """Log a line if this process has not logged it yet."""
    if (level, text) not in _said:
        _said.add((level, text))
        logger.log(level, "%s%s", PREFIX, text)


def local_rank() -> int:
    """This process's rank on its node; 0 where vLLM has no ranks (yet)."""
    state = sys.modules.get("vllm.distributed.parallel_state")
    world = getattr(state, "_WORLD", None)
    return int(getattr(world, "local_rank", 0) or 0)


def once_a_node(level: int, text: str) -> None:
    """`once`, by the first rank of a node alone: for what all ranks would say alike."""
    if local_rank() == 0:
        once(level, text)


def forget() -> None:
    """Say everything again (tests)."""
    _said.clear()
