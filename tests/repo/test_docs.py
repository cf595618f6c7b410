"""Pages keep up with the code: links lead somewhere, modules and commands that they name exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from flymono.cli import main as cli

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md")


def pages(repo: Path) -> list[Path]:
    """The pages that users and contributors read."""
    return sorted(path for pattern in PAGES for path in repo.glob(pattern))


def commands(text: str) -> Iterator[list[str]]:
    """Words behind `flymono` in code spans and in lines of code blocks, without brackets and remarks."""
    spans = re.findall(r"`flymono ([^`]+)`", text)
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```$", text, re.M | re.S))
    lines = re.findall(r"^(?:\S+/)?flymono (.+)$", blocks, re.M)
    for found in (*spans, *lines):
        words = shlex.split(found.partition("#")[0].replace("[", " ").replace("]", " "))
        if "..." not in words:
            yield words


def unknown_word(command: Any, words: list[str]) -> str:
    """The first command or option of `words` that the app does not have, or an empty string."""
    path = list(words)
    if cli.SPECS_OPTION in path:  # `main` takes it out with its folder, wherever it stands
        at = path.index(cli.SPECS_OPTION)
        del path[at : at + 2]
    while hasattr(command, "commands") and path and not path[0].startswith("-"):
        name = path.pop(0)
        if name not in command.commands:
            return name
        command = command.commands[name]
    options = {text for param in command.params for text in param.opts} | {"--help"}
    return next((w for w in path if w.startswith("-") and w not in options), "")


def test_links_lead_somewhere(repo: Path) -> None:
    broken = [
        f"{page.relative_to(repo)}: {target}"
        for page in pages(repo)
        for target in re.findall(r"\]\(([^)#]+)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def test_commands_on_pages_exist(repo: Path) -> None:
    app = typer.main.get_command(cli.build_app())
    wrong = {
        f"{page.relative_to(repo)}: flymono {' '.join(words)}: no {unknown}"
        for page in pages(repo)
        for words in commands(page.read_text())
        if (unknown := unknown_word(app, words))
    }
    assert not wrong


@pytest.mark.parametrize(
    ("words", "unknown"),
    [("plan k1 --rows 6", ""), ("plam k1", "plam"), ("spec shwo", "shwo"), ("gen --row 6", "--row")],
)
def test_what_is_unknown(words: str, unknown: str) -> None:
    assert unknown_word(typer.main.get_command(cli.build_app()), words.split()) == unknown


@pytest.mark.parametrize("command", ["plan", "gen"])
def test_the_readme_s_commands_run(
    repo: Path,
    command: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # some of them write files
    rows = [words for words in commands((repo / "README.md").read_text()) if words[0] == command]
    assert rows
    for words in rows:
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert not ended.value.code, capsys.readouterr().err


def test_the_table_of_gen_names_its_modules(repo: Path) -> None:
    table = (repo / "docs/architecture.md").read_text().partition("| gen step |")[2]
    named = set(re.findall(r"`(\w+\.py)`", table))
    assert named
    assert {name for name in named if not (repo / "gen" / name).is_file()} == set()
