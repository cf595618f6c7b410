"""Cross-checks: what no single field can tell. Each module holds the checks of one kind of spec."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..findings import Finding
from ..schema import ArchSpec, BuildSpec, ModelSpec, NumericsSpec
from ..source import Source
from .arch import check_arch
from .build import check_build
from .context import Context
from .model import check_model, check_prefixes
from .numerics import check_numerics


def check_all(sources: Mapping[str, Source], known: Collection[str]) -> Iterator[Finding]:
    """Findings of all validated `sources`; `known` also holds the keys of files that were refused."""
    context = Context(sources, known)
    for source in sources.values():
        if isinstance(source.spec, ArchSpec):
            yield from check_arch(source, source.spec)
        elif isinstance(source.spec, ModelSpec):
            yield from check_model(source, source.spec)
        elif isinstance(source.spec, BuildSpec):
            yield from check_build(source, source.spec, context)
        elif isinstance(source.spec, NumericsSpec):
            yield from check_numerics(source, source.spec, context)
    yield from check_prefixes(context)
