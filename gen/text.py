"""Differences of texts and figures, for people."""

from __future__ import annotations

import difflib
from collections.abc import Mapping


def unified(before: str, after: str, name_before: str, name_after: str, limit: int = 200) -> str:
    """A unified diff of at most `limit` lines; empty if the texts are equal."""
    lines = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), name_before, name_after, lineterm="", n=2
        )
    )
    more = [f"... and {len(lines) - limit} more lines"] if len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Keys whose values differ, with both values (None where a side lacks the key)."""
    keys = dict.fromkeys([*before, *after])
    return {k: (before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)}


def delta(before: object, after: object) -> str:
    """`154 -> 158 (+4)`."""
    if isinstance(before, int) and isinstance(after, int):
        return f"{before:,} -> {after:,} ({after - before:+,})"
    return f"{before} -> {after}"
