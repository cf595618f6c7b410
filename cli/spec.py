"""`flymono spec`: check, show and copy specs; JSON schemas of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..specs.findings import Finding
    from ..specs.loader import Specs


def register(app: typer.Typer) -> None:
    """Add `flymono spec ...` to the app."""
    spec = typer.Typer(no_args_is_help=True, help="Check, show and copy the YAML specs.")
    spec.command("check")(_check)
    spec.command("show")(_show)
    spec.command("copy")(_copy)
    spec.command("schema")(_schema)
    app.add_typer(spec, name="spec")


def _check(
    probe: Annotated[
        bool, typer.Option("--probe", help="Also compile a probe of every claim of every arch.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
) -> None:
    """Report every finding of every spec file, with its place and its fix."""
    from ..specs.loader import inspect

    specs, findings = inspect()
    if specs is not None:
        from .spec_claims import plan_findings, probe_findings

        findings = [*plan_findings(specs), *(probe_findings(specs) if probe else ())]
    _report(findings, json_)
    if findings:
        raise typer.Exit(2)
    assert specs is not None
    if not json_:
        print(f"{len(specs.names())} specs without a finding: " + ", ".join(specs.names()))


def _report(findings: list[Finding], as_json: bool) -> None:
    import json

    from ..specs.findings import SpecError

    if as_json:
        print(json.dumps([f.as_dict() for f in SpecError(findings).findings], indent=2))
    elif findings:
        print(SpecError(findings).render(), file=sys.stderr)


def _show(
    name: Annotated[
        str | None, typer.Argument(help="gfx950, deepseek_v41_flash, build/k1 ... default: list.")
    ] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="All values, inherited and default ones too.")
    ] = False,
    origin: Annotated[
        bool, typer.Option("--origin", help="Where each value was written; implies --resolved.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="The resolved values as JSON.")] = False,
) -> None:
    """Print a spec; for an arch also the pass width and the row limit, with the stage that decides."""
    from ..specs.loader import load

    specs = load()
    if name is None:
        return _list(specs)
    from .spec_show import as_json, as_yaml, derived_lines

    if json_:
        print(as_json(specs, name))
        return None
    if resolved or origin:
        print(as_yaml(specs, name, origin), end="")
    else:
        print(Path(specs.sources[specs.key(name)].file).read_text(), end="")
    print("\n".join(derived_lines(specs, name)), end="")
    return None


def _list(specs: Specs) -> None:
    from ..specs.findings import shown_path

    for key, source in specs.sources.items():
        print(f"{key:<28} {specs.digest(key)[:12]}  {shown_path(source.file)}")


def _copy(
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
) -> None:
    """Copy the specs to a folder, to edit them; name it with `--specs DIR` or FLYMONO_SPECS."""
    from ..specs.findings import UserError
    from ..specs.loader import KINDS, default_root

    if folder.exists():
        raise UserError(f"`{folder}` exists", fix="name a folder that does not exist yet")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        for kind in (*KINDS, "schemas"):
            if (default_root() / kind).is_dir():
                shutil.copytree(default_root() / kind, part / kind)
        part.rename(folder)
    except OSError as error:  # shutil's own error lists a file at a time and has no number
        reason = error.strerror or (error.args[0][0][2] if isinstance(error, shutil.Error) else str(error))
        fix = "name another place, or free some space; nothing was kept"
        raise UserError(f"cannot write `{folder}`: {reason}", fix=fix) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    print(f"edit the files in {folder}, then for example: flymono --specs {folder} spec check")


def _schema(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Where to write them.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the files are current.")] = False,
) -> None:
    """Write the JSON schemas of the spec files, for editors."""
    from ..specs.export import SCHEMA_DIR, stale_schemas, write_schemas
    from ..specs.findings import UserError

    folder = output or SCHEMA_DIR
    if check:
        stale = stale_schemas(folder)
        if stale:
            names = ", ".join(path.name for path in stale)
            raise UserError(f"not current in {folder}: {names}", fix=f"flymono spec schema -o {folder}")
        print(f"schemas in {folder} are current")
        return
    for path in write_schemas(folder):
        print(f"wrote {path}")
