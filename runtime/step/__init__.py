"""Checks of a step on the host, before a launch: nothing that a kernel would read out of bounds gets there.

`check_step` takes a plan (of K1, K2, an FFN launch, a key-list launch) or a whole layer's, and what is bound
to the launch arguments. It reads tensors and changes nothing, so that it may run before every step. What a
rule means is said in `codes`, what each kernel reads in the module of the rule.
"""

from .check import check_step, step_findings
from .codes import StepCode
from .findings import StepError, StepFinding
from .layer import check_layer

__all__ = ["StepCode", "StepError", "StepFinding", "check_layer", "check_step", "step_findings"]
