"""The shipped matrix as build keys, and what a further width needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Protocol

from ...specs.schema import BuildSpec
from .keys import BuildKey
from .support import SpecSet, model_of


class Matrix(SpecSet, Protocol):
    """Specs with their build files."""

    @property
    def builds(self) -> tuple[BuildSpec, ...]:
        """Every build file."""
        ...


def shipped(specs: Matrix) -> tuple[BuildKey, ...]:
    """Every build of `specs/build`, in the order of files and groups."""
    keys = []
    for build in specs.builds:
        prefix = specs.model[build.model].prefix
        for g in build.groups:
            for tp, rows, ratio, fold, index, window, timeline, draft in product(
                g.tp, build.rows_of(g), g.ratio, g.fold, g.index, g.window, g.timeline, g.draft
            ):
                layer = (ratio, fold, index, window, timeline)
                keys.append(BuildKey(g.kernel, g.arch, tp, rows, *layer, prefix, draft))
    return tuple(dict.fromkeys(keys))


def is_draft(specs: SpecSet, key: BuildKey) -> bool:
    """Whether draft layers alone launch this build: by mixture, or a window list wider than the model's."""
    model = model_of(specs, key.model)
    return key.draft or (model is not None and key.window != model.attention.window)


def at_widths(keys: Iterable[BuildKey], rows: Iterable[int]) -> tuple[BuildKey, ...]:
    """Every variant among `keys` at each of the row counts `rows`."""
    variants = dict.fromkeys(replace(key, rows=1) for key in keys)
    return tuple(replace(key, rows=n) for n in rows for key in variants)
