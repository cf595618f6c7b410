"""`flymono bundle`: compile the shipped builds of an arch and TP size ahead; show and verify bundles."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..specs.findings import UserError
from .build import complain, default_jobs, progress

if TYPE_CHECKING:
    from ..gen.store import Artefact
    from ..runtime.bundle import Bundle
    from ..runtime.bundle.make import Order
    from ..runtime.plan import BuildKey
    from ..specs.loader import Specs

_PATH = Annotated[Path, typer.Argument(metavar="PATH", help="Folder or wheel of a bundle.")]
_JSON = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def register(app: typer.Typer) -> None:
    """Add `flymono bundle`, `bundle verify` and `bundle show` to the app."""
    group = typer.Typer(invoke_without_command=True, help=bundle.__doc__)
    group.callback()(bundle)
    group.command("verify")(verify)
    group.command("show")(show)
    app.add_typer(group, name="bundle")


def bundle(
    ctx: typer.Context,
    arch: Annotated[str | None, typer.Option(help="Arch spec, for example gfx942.")] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor-parallel size.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="PATH", help="A new folder, the folder of a bundle, or FILE.whl."
        ),
    ] = None,
    widths: Annotated[
        str, typer.Option(metavar="N,N", help="Rows of target steps beside the shipped ones.")
    ] = "",
    draft_widths: Annotated[
        str, typer.Option(metavar="N,N", help="Rows of draft steps beside the shipped ones.")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="Keep target, draft, a kind, a part of an id or a glob; repeatable."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Compilations at a time; default: CPUs, at most 4."),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            metavar="N/M", help="Only compile the N-th of M parts, for machines that share FLYMONO_CACHE."
        ),
    ] = "",
    estimate: Annotated[bool, typer.Option("--estimate", help="Only print count, bytes and time.")] = False,
    json: _JSON = False,
) -> None:
    """Compile the shipped builds of an arch and TP size into a bundle that serving loads."""
    if ctx.invoked_subcommand:
        return
    from ..runtime.bundle.make import Order, check_place, outlook
    from ..specs.loader import load

    if arch is None or tp is None:
        raise UserError(
            "a bundle is for one arch and TP size", fix="flymono bundle --arch gfx950 --tp 2 -o PATH"
        )
    specs = load()
    order = Order(
        arch, tp, numbers("--widths", widths), numbers("--draft-widths", draft_widths), tuple(only or ())
    )
    keys, count = _chosen(specs, order, part), jobs or default_jobs()
    if output is not None:
        check_place(order, output)
    elif not (part or estimate):
        raise UserError("where shall the bundle go?", fix=order.command)
    print(outlook(keys, _store_root(), count), file=sys.stderr)
    if estimate:
        return
    artefacts = _built(specs, keys, count, quiet=json)
    if part or output is None:
        print(f"part {part}: {len(keys)} builds are in {_store_root()}", file=sys.stderr)
    else:
        _write(order, specs, artefacts, output, json)


def numbers(option: str, text: str) -> tuple[int, ...]:
    """`7,9` as numbers; UserError for anything else."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"{option} {text}: these are no row counts", fix=f"{option} 7,9")
    return tuple(sorted({int(word) for word in words}))


def _chosen(specs: Specs, order: Order, part: str) -> tuple[BuildKey, ...]:
    """The builds of the order, all of which have a plan; of a part, if one is named."""
    from ..gen.units import unit_of
    from ..runtime.bundle.make import part_of
    from ..specs.findings import check_all

    _check_arch(specs, order.arch, order.tp)
    keys = order.keys(specs)
    further = {*order.widths, *order.draft_widths}
    check_all(*(lambda key=key: unit_of(specs, key) for key in keys if key.rows in further))
    if not part:
        return keys
    n, _, m = part.partition("/")
    if not (n.isdecimal() and m.isdecimal() and 1 <= int(n) <= int(m)):
        raise UserError(f"--part {part}: no such part", fix="--part 1/4 to --part 4/4")
    return part_of(keys, int(n), int(m))


def _check_arch(specs: Specs, arch: str, tp: int) -> None:
    offered = specs.arch[arch].tp
    if tp not in offered:
        choices = " or ".join(f"--tp {n}" for n in offered)
        raise UserError(f"TP{tp} is not of {arch}", fix=f"use {choices}")


def _store_root() -> Path:
    from ..gen.store import default_root

    return default_root()


def _built(specs: Specs, keys: Sequence[BuildKey], jobs: int, quiet: bool) -> list[Artefact]:
    """Artefacts of `keys`; exits if one fails. What is finished is in the store, whatever happens."""
    from ..gen.build import Settings, build_all
    from ..gen.probes import require
    from ..gen.store import Store
    from ..gen.units import unit_of

    settings = Settings(Store(), jobs=jobs)
    for arch in sorted({key.arch for key in keys}):
        require(specs.arch[arch], settings.store.root)
    with progress(len(keys), quiet) as advance:
        outcomes = build_all((unit_of(specs, k) for k in keys), settings, advance or (lambda outcome: None))
    complain(outcomes)
    return [outcome.artefact for outcome in outcomes if outcome.artefact is not None]


def _write(order: Order, specs: Specs, artefacts: Sequence[Artefact], output: Path, json: bool) -> None:
    from ..runtime.bundle.make import write

    made = write(order, specs, artefacts, output)
    if json:
        print(json_.dumps(_summary(made), indent=1))
        return
    wheel = output.suffix == ".whl"
    how = f"pip install {output}" if wheel else f"FLYMONO_BUNDLE={output.absolute()}"
    print(f"bundle {made.id} of {len(made.builds)} builds: {output}\nto serve from it: {how}")


def verify(path: _PATH, json: _JSON = False) -> None:
    """Read every byte of a bundle and compare it with specs and plans; exit code 2 if it is refused."""
    from ..runtime.bundle import Bundle
    from ..specs.findings import check_all
    from ..specs.loader import load

    opened, specs = Bundle.open(path), load()
    check_all(opened.verify, lambda: opened.check(specs))
    if json:
        print(json_.dumps(_summary(opened), indent=1))
    else:
        print(f"{path}: {len(opened.builds)} builds of {opened.arch} TP{opened.tp} are whole and current")


def show(path: _PATH, json: _JSON = False) -> None:
    """What a bundle holds: versions, specs, widths, and the figures of each build."""
    from ..runtime.bundle import Bundle
    from ..specs.loader import load

    opened = Bundle.open(path)
    if json:
        print(json_.dumps(_summary(opened), indent=1))
    else:
        print(_text(opened, load()), end="")


def _summary(made: Bundle) -> dict[str, Any]:
    m = made.manifest
    builds = {name: build.to_json() for name, build in m.builds.items()}
    return {
        "id": made.id, "path": str(made.path), "arch": m.arch, "tp": m.tp, "command": m.command,
        "versions": dict(m.versions), "specs": dict(m.specs), "builds": builds,
    }  # fmt: skip


def _text(made: Bundle, specs: Specs) -> str:
    from ..runtime.bundle import widths

    m = made.manifest
    size = sum(f.size for b in m.builds.values() for f in b.files)
    rows = {name: ", ".join(map(str, widths(made, specs, name == "draft"))) for name in ("target", "draft")}
    lines = [
        f"bundle {made.id}: {m.arch} TP{m.tp}, {len(m.builds)} builds, {size / 1e6:.1f} MB",
        f"made by   {m.command}",
        f"with      {', '.join(f'{k} {v}' for k, v in m.versions.items())}",
        f"from      {', '.join(f'{k} {v[:12]}' for k, v in m.specs.items())}",
        *(f"{name:<9} {'rows ' + text if text else 'no width is complete'}" for name, text in rows.items()),
    ]
    wide = max(map(len, m.builds))
    lines.append(f"{'build':<{wide}}  {'bytes':>8} {'VGPR':>5} {'SGPR':>5} {'LDS':>8}  digest")
    for name, b in m.builds.items():
        r = b.resources
        figures = f"{b.code.size:>8,} {r['vgprs']:>5} {r['sgprs']:>5} {r['lds_bytes']:>8,}"
        lines.append(f"{name:<{wide}}  {figures}  {b.sha256[:12]}")
    return "\n".join(lines) + "\n"
