"""A fact that code or a test cites by section is on the page that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDERS = ("specs", "runtime", "mono", "templates", "gen", "reference", "emulator", "cli", "tests")
SUFFIXES = {".py", ".j2", ".yaml", ".cpp", ".hpp"}
# pages that are whole; ffn_structure.md has what the plan's LDS and limits need of it
PAGES = ("attention",)


def citations(text: str, page: str) -> set[str]:
    """Sections that `text` cites: `page.md 5.4 and 5.6`, "page sheet 4.1 .. 4.6" (a range by its ends)."""
    number = r"\d+(?:\.\d+)?"
    pattern = rf"{page}(?:\.md| sheet) ({number}(?:(?:, | and | to | \.\. ){number})*)"
    return {n for found in re.findall(pattern, text) for n in re.findall(number, found)}


def sections(text: str) -> set[str]:
    """Numbers of the page's headings."""
    return set(re.findall(r"^##+ ([\d.]*\d)\.? ", text, re.M))


def test_what_counts_as_a_citation() -> None:
    assert citations("(attention.md 5.4 and 5.6, ffn_structure.md 3)", "attention") == {"5.4", "5.6"}
    assert citations("attention sheet 4.1 .. 4.6, 2.5.", "attention") == {"4.1", "4.6", "2.5"}
    assert citations("attention.md 7, example", "attention") == {"7"}
    assert sections("## 5. Tasks\n### 5.4 Chunks\n") == {"5", "5.4"}


@pytest.mark.parametrize("page", PAGES)
def test_every_cited_section_is_on_the_page(repo: Path, page: str) -> None:
    there = sections((repo / f"docs/facts/{page}.md").read_text())
    missing = {
        f"{path.relative_to(repo)} cites {page}.md {number}, which docs/facts/{page}.md does not have"
        for folder in FOLDERS
        for path in (repo / folder).rglob("*")
        if path.suffix in SUFFIXES and path != Path(__file__)
        for number in citations(path.read_text(), page) - there
    }
    assert not missing, "\n".join(sorted(missing))
