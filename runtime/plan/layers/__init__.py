"""From what a server says of itself to one path a layer, and from a step's metadata to its path.

Read in this order: `codes` (every reason there is), `features` (what vLLM can be started with), `host` (what
a server says, and what follows from it), `builds`, `model` (the plan), `step` (the routing of a step),
`agreement` (one plan on all ranks), `summary` (lines of a log), `nearest` (the closest that is whole).
Ints and strings; no torch, no vLLM.
"""

from .agreement import Vote, differences, vote_of
from .codes import CATALOGUE, Entry, ServeCode, host_line, reason
from .features import FEATURES, Feature
from .host import Host, HostLayer, Path, draft_window
from .model import LayerPath, ModelPlan, model_plan
from .nearest import Question, nearest_choice
from .step import Counts, Decision, StepFacts, decide
from .summary import check_starts, startup_lines

__all__ = [
    "CATALOGUE",
    "FEATURES",
    "Counts",
    "Decision",
    "Entry",
    "Feature",
    "Host",
    "HostLayer",
    "LayerPath",
    "ModelPlan",
    "Path",
    "Question",
    "ServeCode",
    "StepFacts",
    "Vote",
    "check_starts",
    "decide",
    "differences",
    "draft_window",
    "host_line",
    "model_plan",
    "nearest_choice",
    "reason",
    "startup_lines",
    "vote_of",
]
