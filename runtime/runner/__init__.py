"""The host side of launches in a server: buffers, peer memory, packed arguments, K1, K2 and FFN launches.

`Runner.create(...)` on every rank (all agree, or none has a runner), `runner.layer(...)` and
`runner.ffn(...)` in
every step, `runner.guard()` and `runner.health()` once a step, `runner.close()`.
"""

from .errors import Doing, InputError, RunnerError
from .faults import FaultError, FaultReport
from .inputs import LayerWeights, Seam, Step
from .modules import Modules
from .ranks import GlooRanks, LocalRanks, Ranks, RanksError
from .runner import Runner
from .sizes import Place

__all__ = [
    "Doing",
    "FaultError",
    "FaultReport",
    "GlooRanks",
    "InputError",
    "LayerWeights",
    "LocalRanks",
    "Modules",
    "Place",
    "Ranks",
    "RanksError",
    "Runner",
    "RunnerError",
    "Seam",
    "Step",
]
