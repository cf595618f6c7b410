"""What a server can be started with besides parallelism, and whether decode then still runs on the kernels.

Invariant: every feature has a verdict, `WORKS` or a code of the catalogue, and a sentence that says why. A
host names what is on in `Host.features`; a name that is not in this table is the host's mistake.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.findings import UserError, near
from ..unsupported import Reason
from .codes import ServeCode, reason

WORKS = "works"


@dataclass(frozen=True)
class Feature:
    """One feature; `option` is how vLLM spells it, `code` None where it works."""

    option: str
    code: ServeCode | None
    why: str

    @property
    def verdict(self) -> str:
        """`works`, or class and code."""
        return WORKS if self.code is None else f"{self.code.klass}: {self.code}"


FEATURES: dict[str, Feature] = {
    "expert-parallel": Feature(
        "--enable-expert-parallel, --enable-eplb",
        ServeCode.EXPERT_PARALLEL,
        "a rank's kernels read all experts",
    ),
    "data-parallel": Feature(
        "--data-parallel-size", ServeCode.DATA_PARALLEL, "steps of replicas differ in width"
    ),
    "pipeline-parallel": Feature(
        "--pipeline-parallel-size",
        ServeCode.PIPELINE_PARALLEL,
        "layers settle their residual in the next one",
    ),
    "context-parallel": Feature(
        "--decode-context-parallel-size, --prefill-context-parallel-size",
        ServeCode.CONTEXT_PARALLEL,
        "K2 reads a request's whole cache",
    ),
    "sequence-parallel": Feature(
        "compilation pass enable_sp", ServeCode.SEQUENCE_PARALLEL, "rows of a step are spread over ranks"
    ),
    "dbo": Feature("--enable-dbo", ServeCode.DUAL_BATCH, "two launches at once do not fit the GPU"),
    "lora": Feature("--enable-lora", ServeCode.LORA, "the kernels read the base weights"),
    "sleep-mode": Feature(
        "--enable-sleep-mode", ServeCode.SLEEP_MODE, "level 2 drops weights; copies and graphs hold addresses"
    ),
    "kv-transfer": Feature(
        "--kv-transfer-config", ServeCode.KV_TRANSFER, "connectors hook the attention op of a layer"
    ),
    "kv-offload": Feature(
        "--kv-offloading-size", ServeCode.KV_OFFLOAD, "connectors hook the attention op of a layer"
    ),
    "weight-cache": Feature(
        "weights taken from another process (IPC)",
        ServeCode.WEIGHTS_CONVERTED,
        "they arrive as the host's kernels read them: copies cannot be made",
    ),
    "moe-a4w4": Feature("VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4", ServeCode.MOE_A4W4, "another activation format"),
    "prefix-cache-replay": Feature(
        "swa_bounded_replay",
        None,
        "a step that replays has prefills, so the host's path runs all of it (prefills)",
    ),
    "batch-sharded-sampling": Feature(
        "enable_batch_sharded_sampling",
        None,
        "sampling comes after the last layer; layers hold all rows of a step",
    ),
    "dynamic-speculation": Feature(
        "draft counts that change from step to step",
        None,
        "each step's width is looked up (width-not-built); window lists are as wide for 1 to 64 drafts",
    ),
    "draft-count": Feature(
        "num_speculative_tokens other than the model's",
        None,
        "1 to 64 drafts have window lists as draft builds read them; with more, drafts take the FFN launch",
    ),
}


def feature_reasons(names: tuple[str, ...], **values: object) -> list[Reason]:
    """Reasons of what is on; UserError for a name that is not in the table."""
    if unknown := sorted(set(names) - set(FEATURES)):
        raise UserError(f"no feature is called {', '.join(unknown)}", fix=near(unknown[0], FEATURES))
    found = [FEATURES[name].code for name in sorted(set(names))]
    return [reason(code, **_VALUES.get(code, {}), **values) for code in found if code is not None]


_VALUES: dict[ServeCode, dict[str, object]] = {
    ServeCode.DATA_PARALLEL: {"size": "above 1"},
    ServeCode.PIPELINE_PARALLEL: {"size": "above 1"},
    ServeCode.CONTEXT_PARALLEL: {"size": "above 1"},
    ServeCode.WEIGHTS_CONVERTED: {
        "tensor": "every expert tensor",
        "what": "the weight cache holds converted ones",
    },
}
"""What the sizes in a reason's text are where a host names the feature and no size."""
