"""The docking class: what a decoder layer of vLLM asks in every step.

Invariants
 - Its surface is that of vLLM's `MonoDecodeLayer` (runtime.md 9.2); `fit` checks it when vLLM's module is
   executed.
 - A layer that the plan takes, in a step that the decision takes, runs on the kernels: nothing local to a
   rank may decline later. None means vLLM's path.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..plan.layers import Path
from ..runner import LayerWeights, Runner, Seam
from . import log
from .plugin import SWITCH, mode
from .selection import select
from .server import Server, server_of
from .step import forward_context, inputs_of

Outputs = tuple[Tensor, ...]
_asked: list[str] = []
"""Helpers that this process has asked vLLM to build."""


class MonoLayer:
    """One decoder layer's way to the kernels: whole (`__call__`), or behind its attention (`ffn`)."""

    def __init__(self, server: Server, layer: Any, path: Path, *, draft: bool) -> None:
        self.server, self.path, self.draft = server, path, draft
        self.attn, self.number = layer.attn, int(layer.attn.layer_id)
        self.copies = server.copies_of(layer, attention=path is Path.WHOLE, draft=draft)
        self.weights: LayerWeights | None = None
        self.last = False
        """Whether a step's faults are looked for behind this layer."""

    @staticmethod
    def create(layer: Any, vllm_config: Any) -> MonoLayer | None:
        """The docking object of a layer that is being made; None where the layer is vLLM's own.

        Raises ValueError where a server that asked for kernels cannot have them (every reason, with its fix).
        """
        _tell_helpers(vllm_config)
        if not vllm_config.kernel_config.monokernel:
            return None
        if mode() == "stock":
            log.once_a_node(logging.INFO, f"{SWITCH}=stock: every layer runs vLLM's path")
            return None
        return server_of(layer, vllm_config).admit(layer)

    @property
    def ffn_only(self) -> bool:
        """vLLM asks when the layer is made, and leaves the attention's output unreduced if so."""
        return self.path is Path.FFN

    @property
    def unfolded_entry(self) -> bool:
        """Whether the first layer on vLLM's path projects the expanded residual as K1 does (2.5)."""
        return self.path is Path.WHOLE and self.copies.own

    def __call__(
        self, layer: Any, x: Tensor, positions: Tensor, residual: Tensor | None, post_mix: Tensor | None,
        res_mix: Tensor | None, pre_mix: Tensor | None, engram_hashes: Tensor | None = None,
        engram_mask: Tensor | None = None,
    ) -> Outputs | None:  # fmt: skip
        """The layer's (x, residual, post_mix, res_mix, pre_mix), or None: vLLM's path."""
        if self.path is not Path.WHOLE:
            return None
        runner = self._taken(x.shape[0], whole=True, entry_dims=x.dim() if residual is None else None)
        if runner is None or self.weights is None:
            return None
        given, fold = self._entry(layer, x, residual, post_mix, res_mix, pre_mix, engram_hashes, engram_mask)
        step = inputs_of(self.attn, forward_context().attn_metadata, positions)  # type: ignore[union-attr]
        chosen = None if self.attn.indexer is None else partial(select, self.attn, positions)
        return self._done(runner, runner.layer(self.weights, step, given, fold=fold, select=chosen))

    def ffn(
        self, layer: Any, part: Tensor, residual: Tensor, post_mix: Tensor, res_mix: Tensor, pre_mix: Tensor
    ) -> Outputs | None:
        """The same from `part`, this rank's unreduced attention output, on; None: vLLM reduces it and goes
        on."""
        runner = self._taken(part.shape[0], whole=False, entry_dims=None)
        if runner is None or self.weights is None:
            return None
        return self._done(runner, runner.ffn(self.weights, Seam(part, residual, post_mix, res_mix, pre_mix)))

    def _done(self, runner: Runner, made: Seam) -> Outputs:
        """The outputs; behind a step's last layer also an assertion on the device, which a captured graph
        holds: the tokens of a step whose waits gave up do not leave."""
        if self.last:
            runner.gpu.in_order(partial(_assert_sound, runner))
        return tuple(made)  # type: ignore[arg-type]

    def _taken(self, rows: int, *, whole: bool, entry_dims: int | None) -> Runner | None:
        """The runner if the step that runs takes the kernels."""
        server, own = self.server, self.draft and self.path is Path.WHOLE
        if not server.on:
            return None
        if server.runner(own) is None:
            server.prepare(own)
        decision = server.decision(rows, draft=self.draft, entry_dims=entry_dims)
        return server.runner(own) if (decision.whole if whole else decision.ffn) else None

    def _entry(
        self, layer: Any, x: Tensor, residual: Tensor | None, post: Tensor | None, comb: Tensor | None,
        pre: Tensor | None, hashes: Tensor | None, mask: Tensor | None,
    ) -> tuple[Seam, bool]:  # fmt: skip
        """K1's inputs, and whether it folds the owed post in: not where the residual arrives settled."""
        if residual is None:
            streams = x if self.draft else x.unsqueeze(1).expand(-1, layer.hc_mult, -1)
            return Seam(None, streams.contiguous(), None, None, None), False
        if layer.engram is None or hashes is None:
            return Seam(x, residual, post, comb, pre), True
        settled = layer.mhc_post(x, residual, post, comb)
        settled = layer.engram(settled, hashes[:, layer.engram.layer_hash_index], mask)
        return Seam(None, settled, None, None, pre), False


def _assert_sound(runner: Runner) -> None:
    torch._assert_async(runner.sound(), "flymono: a launch of this step was stopped (see the fault report)")


def _tell_helpers(config: Any) -> None:
    """vLLM's own decode helpers are switched on by its docking class, so this one does it too (runtime.md
    6.0); the top-k helper is built now, and once, so that a failure shows at start-up."""
    from vllm.models.deepseek_v41.amd import ops

    ops.record_monokernel(config)
    if ops.enabled() and "topk" not in _asked:
        from vllm.models.deepseek_v41.amd.ops import topk

        _asked.append("topk")
        topk.build()
