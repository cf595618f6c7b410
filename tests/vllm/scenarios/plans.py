"""All decoder layers and the draft model, on meta: what was planned for each, and what was asked of vLLM."""

import sys
import time
from unittest import mock

from harness import Echo, Supplies, Worker, answer, serve

ARCH, TP, *OPTIONS = sys.argv[1:]
ENGINE = {"attention_config": {"indexer_kv_dtype": "mxfp4"}} if "mxfp4" in OPTIONS else {}
if "ep" in OPTIONS:
    ENGINE["enable_expert_parallel"] = True


def main() -> None:
    serve(Supplies(Echo(0, int(TP))))
    with Worker(ARCH, int(TP), **ENGINE) as worker:
        from vllm.models.deepseek_v41.amd import ops
        from vllm.models.deepseek_v41.amd.ops import topk

        from flymono.runtime.plan.layers import startup_lines
        from flymono.runtime.vllm.server import running

        start = time.monotonic()
        try:
            with mock.patch.object(topk, "build") as build:
                layers = [worker.layer(n) for n in range(40)]
                drafts = list(worker.draft_model().model.layers)
        except ValueError as error:
            answer(refused=str(error))
            return
        server = running()
        answer(
            paths={one.attn.layer_id: said(one) for one in (*layers, *drafts)},
            plan=None if server is None else server.plan.data(),
            lines=[] if server is None else [line.text for line in startup_lines(server._planned())],
            helpers=ops.enabled(), asked_to_build=build.call_count, seconds=time.monotonic() - start,
        )  # fmt: skip


def said(layer: object) -> dict[str, object]:
    mono = layer.mono
    return {
        "class": None if mono is None else f"{type(mono).__module__}.{type(mono).__name__}",
        "path": "stock" if mono is None else str(getattr(mono, "path", "?")),
        "reduces": layer.attn.wo_b.reduce_results,
        "unfolded": bool(mono is not None and mono.unfolded_entry),
        "heads": layer.attn.n_local_heads if hasattr(layer.attn, "n_local_heads") else None,
        "wq_b": list(layer.attn.wq_b.weight.shape),
    }


main()
