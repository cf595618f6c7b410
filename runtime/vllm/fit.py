"""Whether this vLLM is one that the docking class was written for, and if so: putting it in place.

Invariants
 - First the release (metadata of the installed package: importing vLLM for it would cost seconds), then the
   shape of what is called and read: names and parameters. The first difference is named, and vLLM left alone.
 - A local or development version of the same release is the same release (0.33.0+rocm700, 0.33.0.dev3).
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import re
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from ..plan.layers.codes import ServeCode, reason
from ..plan.unsupported import Reason
from . import log

RELEASE = (0, 33)
WANTED = "0.33"
ANY_VERSION = "FLYMONO_ANY_VLLM"
OURS = "_flymono"

PARAMETERS = {
    "MonoDecodeLayer.create": ("layer", "vllm_config"),
    "MonoDecodeLayer.__call__": (
        "self", "layer", "x", "positions", "residual", "post_mix", "res_mix", "pre_mix",
        "engram_hashes", "engram_mask",
    ),
    "MonoDecodeLayer.ffn": ("self", "layer", "part", "residual", "post_mix", "res_mix", "pre_mix"),
    "DeepseekV4DecoderLayer.forward": (
        "self", "x", "positions", "input_ids", "pre_mix", "post_mix", "res_mix", "residual",
        "engram_hashes", "engram_mask",
    ),
    "DeepseekV41LLMForCausalLM.compute_logits": ("self", "hidden_states"),
    "DeepseekV41LLMForCausalLM.compute_logits_local": ("self", "hidden_states"),
}  # fmt: skip
"""Callables of the hooked module, as vLLM calls or defines them."""

FIELDS = {
    "vllm.models.deepseek_v41.amd.rocm:DeepseekV41ROCMAiterSparseSWAMetadata": (
        "slot_mapping", "block_size", "num_decodes", "num_prefills", "num_decode_tokens",
        "decode_swa_indices", "decode_swa_lens", "decode_swa_width", "token_to_req_indices",
    ),
    "vllm.models.deepseek_v41.sparse_mla:DeepseekV4FlashMLAMetadata": ("block_size", "block_table"),
    "vllm.forward_context:ForwardContext": ("attn_metadata", "cudagraph_runtime_mode"),
}  # fmt: skip
"""Dataclasses that a step is read from, and what is read of them."""


def fit(module: ModuleType) -> bool:
    """Put the docking class into vLLM's model module; False if this vLLM is another one."""
    if getattr(module, OURS, False):
        return True
    why = version_reason() or shape_reason(module)
    if why is not None:
        log.once_a_node(logging.WARNING, f"{why.code}: {why.text}; vLLM is left alone (fix: {why.fix})")
        return False
    from .layer import MonoLayer
    from .watch import watch_logits

    module.MonoDecodeLayer = MonoLayer  # type: ignore[attr-defined]
    watch_logits(module.DeepseekV41LLMForCausalLM)
    setattr(module, OURS, True)
    return True


def version_reason() -> Reason | None:
    """Why the installed vLLM is another release; None if it is ours, or if nobody asks."""
    if os.environ.get(ANY_VERSION, "") not in ("", "0"):
        return None
    try:
        found = version("vllm")
    except PackageNotFoundError:
        return reason(ServeCode.HOST_VERSION, found="without metadata", want=WANTED)
    if release_of(found)[: len(RELEASE)] == RELEASE:
        return None
    return reason(ServeCode.HOST_VERSION, found=found, want=WANTED)


def release_of(text: str) -> tuple[int, ...]:
    """The release segment of a PEP 440 version: numbers before any dev, post or local part."""
    match = re.match(r"\s*v?(?:\d+!)?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, match[1].split("."))) if match else ()


def shape_reason(module: ModuleType) -> Reason | None:
    """The first difference between what this vLLM has and what is called or read here."""
    what = _calls(module) or _made_by_name(module) or _fields()
    return reason(ServeCode.HOST_SHAPE, what=what, want=WANTED) if what else None


def _calls(module: ModuleType) -> str | None:
    for name, wanted in PARAMETERS.items():
        owner, _, method = name.partition(".")
        function = getattr(getattr(module, owner, None), method, None)
        if function is None:
            return f"{module.__name__} has no {name}"
        found = tuple(inspect.signature(function).parameters)
        if found != wanted:
            return f"{name} takes ({', '.join(found)}), not ({', '.join(wanted)})"
    return None


def _made_by_name(module: ModuleType) -> str | None:
    """Layers must look the docking class up by its name when they are made."""
    layer: Any = getattr(module, "DeepseekV4DecoderLayer", None)
    names = layer.__init__.__code__.co_names if layer is not None else ()
    missing = {"MonoDecodeLayer", "create", "mono"} - set(names)
    return f"DeepseekV4DecoderLayer does not make its docking object: no {min(missing)}" if missing else None


def _fields() -> str | None:
    from importlib import import_module

    for place, wanted in FIELDS.items():
        home, _, name = place.partition(":")
        owner = getattr(import_module(home), name, None)
        if owner is None or not dataclasses.is_dataclass(owner):
            return f"{home} has no dataclass {name}"
        missing = [w for w in wanted if w not in {f.name for f in dataclasses.fields(owner)}]
        if missing:
            return f"{name} has no field {missing[0]}"
    return None
