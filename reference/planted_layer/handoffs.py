"""Planted bugs of hand-offs: a tag of another launch, a flag that was never set, copies that differ."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..launch import Launch
from .registry import Bench, Damage, Shows, always, damaged, is_ffn, is_k2

STALE = (
    ("k2.split.srdy", "srdy", is_k2),
    ("k2.combine.crdy", "crdy", is_k2),
    ("k2.wo_a.ardy", "ardy", is_k2),
    ("k2.wo_b.attn_tags", "attn", is_k2),
    ("ffn.push.attn_tags", "attn", is_ffn),
    ("ffn.slice.lin_tags", "lin", always),
    ("ffn.slice.pmix_tags", "pmix", always),
    ("ffn.norm.xrdy_moe", "xrdy_moe", always),
    ("ffn.xq.x8rdy", "x8rdy", always),
    ("ffn.router.logit_tags", "logit", always),
    ("ffn.route.route_tags", "route", always),
    ("ffn.shared.smid_tags", "smid", always),
    ("ffn.shared.sm_tags", "smq", always),
    ("ffn.ug.ugf", "ugf", always),
    ("ffn.down.ffn_tags", "ffn", always),
)


def _stale(region: str) -> Damage:
    def stale(launches: list[Launch], bench: Bench) -> list[Launch]:
        """The first pair of the last rank still has the tag of the launch before."""
        last = launches[-1]
        octets = last.regions[region].clone()
        octets.view(torch.int32)[1] = last.tag - 2
        return [*launches[:-1], replace(last, regions={**last.regions, region: octets})]

    stale.__name__ = f"stale_{region}"
    return stale


def _plant(output: str, region: str, shows: Shows) -> None:
    damage = _stale(region)
    damage.__name__ = f"stale_{output.split('.')[1]}_{region}"
    damaged(output, f"a pair of {region} has another launch's tag", shows)(damage)


for _output, _region, _shows in STALE:
    _plant(_output, _region, _shows)


@damaged("ffn.route.copies", "one copy of the routes differs from the others")
def route_copy_differs(launches: list[Launch], bench: Bench) -> list[Launch]:
    first = launches[0]
    octets = first.regions["route"].clone()
    words = octets.view(torch.int32)
    words[words.numel() // 2] += 1
    return [replace(first, regions={**first.regions, "route": octets}), *launches[1:]]
