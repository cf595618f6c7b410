"""How `flymono spec show` renders a spec."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..specs.emit import emit
from ..specs.findings import UserError
from ..specs.loader import Specs
from ..specs.schema import ArchSpec
from ..specs.tree import Tree


def as_json(specs: Specs, name: str) -> str:
    """All resolved values."""
    return json.dumps(specs.spec(name).model_dump(mode="json", exclude_none=True), indent=2)


def as_yaml(specs: Specs, name: str, origin: bool) -> str:
    """All resolved values as YAML, each with its origin if asked."""
    source = specs.sources[specs.key(name)]
    tree = specs.resolved(name)

    def comment(value: Tree) -> str:
        where = value.where
        how = "default" if where == source.tree.where and value is not tree else source.how(where)
        return f"{how}" if how == "default" else f"{where} ({how})"

    return emit(tree, comment) if origin else emit(tree)


def derived_lines(specs: Specs, name: str) -> Iterator[str]:
    """What the plan derives from an arch for each model: pass width, row limit, the stage that decides."""
    arch = specs.spec(name)
    if not isinstance(arch, ArchSpec):
        return
    from ..runtime.plan.width import width_report

    for model in specs.model.values():
        yield f"\n# derived by the plan for {model.name}"
        try:
            report = width_report(model, arch)
        except UserError as error:
            yield from (f"# {line}" for line in error.render().splitlines())
            continue
        yield f"# pass width {report.width}{' (auto)' if report.auto else ''}: {report.why}"
        yield f"# row limit  {report.limit.rows}: {report.limit.by}: {report.limit.why}"
        tight = report.tightest
        need = f"{tight.bytes} of {report.budget} bytes of LDS, {tight.slack} left"
        yield f"# tightest   {tight.stage} at TP{tight.tp}, {tight.rows} rows: {need}\n"
