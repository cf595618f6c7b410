"""`flymono codes`: what each finding code means; all of them are the page docs/findings.md.

The page is made from the catalogues beside the code that reports the findings, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

_INTRO = """# Findings

Made by `flymono codes`, from the catalogues in the code; do not edit (`make goldens` writes it anew).

Every finding names a place, a code, what is wrong and what to do. `{...}` stands for what a finding fills in.
"""


@dataclass(frozen=True)
class Catalogue:
    """One list of codes: title, a sentence about it, column heads, {code: further columns}."""

    title: str
    about: str
    heads: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


def register(app: typer.Typer) -> None:
    """Add `flymono codes` to the app."""
    app.command("codes")(codes)


def codes(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CODE...]", help="Default: the page.")] = None,
) -> None:
    """Explain finding codes."""
    from ..specs.findings import UserError, near

    every = catalogues()
    if not names:
        print(page(every), end="")
        return
    known = [code for one in every for code in one.rows]
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"no finding has code {unknown[0]}", fix=near(unknown[0], known))
    for name in names:
        for one in every:
            if name in one.rows:
                print(f"{name} ({one.title}): " + "\n    fix: ".join(one.rows[name]))


def catalogues() -> tuple[Catalogue, ...]:
    """All catalogues, in the order in which a user meets them."""
    from ..emulator.findings import KINDS
    from ..gen.findings import CODES
    from ..runtime.bundle import BundleCode
    from ..runtime.plan import Code as PlanCode
    from ..runtime.plan.layers import CATALOGUE, FEATURES, host_line
    from ..runtime.step.codes import ABOUT
    from ..specs.findings import Code as SpecCode

    hinted = "depends on the case and is said with the finding"
    spec = {c.name: (c.value.text, c.value.fix.replace("{hint}", hinted)) for c in SpecCode}
    return (
        Catalogue("specs", "Of `flymono spec check` and of every command.", ("code", "text", "fix"), spec),
        Catalogue(
            "plan",
            "Why a build is refused; a refusal names all reasons and the nearest supported build. In a "
            "server, the class says what follows (see serving).",
            ("code", "class", "meaning"),
            {str(c): (str(c.klass), c.about) for c in PlanCode},
        ),
        Catalogue(
            "serving",
            "Why a server, a layer or a step does not run on the kernels: `flymono why`, the server's log. "
            "Phase: when it can be known. Class: STOP, the server does not start (FLYMONO_STRICT=0 makes it "
            "STOCK); STOCK, vLLM's own path; FFN, vLLM's attention and our FFN launch; STEP, vLLM's path for "
            "this step. The last column is the line of vLLM's own mono path that it stands for.",
            ("code", "phase", "class", "text", "fix", "vLLM's line"),
            {
                str(c): (str(e.phase), str(e.klass), _plain(e.text), _plain(e.fix), host_line(c))
                for c, e in CATALOGUE.items()
            },
        ),
        Catalogue(
            "features",
            "What vLLM can be started with, and whether decode then still runs on the kernels.",
            ("feature", "vLLM's option", "verdict", "why"),
            {name: (f.option, f.verdict, f.why) for name, f in FEATURES.items()},
        ),
        Catalogue("builds", "Of `flymono gen` and `flymono build`.", ("code", "meaning"), _cells(CODES)),
        Catalogue(
            "bundles",
            "Of `flymono bundle` and of a server that opens one; each with the command that mends it.",
            ("code", "meaning"),
            _cells({str(code): code.about for code in BundleCode}),
        ),
        Catalogue(
            "steps",
            "Of the launch arguments of a step, before it is launched: `runtime.step.check_step`.",
            ("code", "meaning"),
            _cells({str(code): about for code, about in ABOUT.items()}),
        ),
        Catalogue(
            "emulator",
            "What a kernel must not do: `flymono run`, `Emulator.launch`.",
            ("kind", "meaning"),
            _cells(KINDS),
        ),
    )


def page(every: Iterable[Catalogue]) -> str:
    """The catalogues as Markdown."""
    return _INTRO + "".join(map(_section, every))


def _section(one: Catalogue) -> str:
    head = f"| {' | '.join(one.heads)} |\n|{'---|' * len(one.heads)}\n"
    rows = [f"| `{code}` | {' | '.join(map(_escaped, cells))} |\n" for code, cells in one.rows.items()]
    return f"\n## {one.title.capitalize()}\n\n{one.about}\n\n{head}{''.join(rows)}"


def _cells(table: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {code: (meaning,) for code, meaning in table.items()}


def _plain(template: str) -> str:
    """A template as a reader sees it: braces that stand for themselves once."""
    return template.replace("{{", "{").replace("}}", "}")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
