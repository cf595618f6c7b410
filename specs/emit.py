"""Write a resolved spec back as YAML that the strict loader reads to the same values.

Lists of scalars and of mappings stand on one line an item, so that each line has one origin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from .scalars import Scalar, read_plain
from .tree import Leaf, Map, Seq, Tree

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*\Z")

Comment = Callable[[Tree], str]


def emit(tree: Tree, comment: Comment = lambda _: "") -> str:
    """YAML text of a mapping; `comment` may add a remark to the line of each value."""
    lines = list(_block(tree, "", comment)) if isinstance(tree, Map) else [(_flow(tree), comment(tree))]
    width = max((len(text) for text, remark in lines if remark and len(text) <= 90), default=0)
    return "".join(f"{text:<{width}}  # {remark}\n" if remark else f"{text}\n" for text, remark in lines)


def _block(tree: Map, indent: str, comment: Comment) -> Iterator[tuple[str, str]]:
    for key, entry in tree.entries.items():
        value = entry.value
        if isinstance(value, Map) and value.entries:
            yield f"{indent}{key}:", ""
            yield from _block(value, indent + "  ", comment)
        elif isinstance(value, Seq) and any(isinstance(item, Map) for item in value.items):
            yield f"{indent}{key}:", ""
            for item in value.items:
                yield f"{indent}  - {_flow(item)}", comment(item)
        else:
            yield f"{indent}{key}: {_flow(value)}", comment(value)


def _flow(tree: Tree) -> str:
    if isinstance(tree, Map):
        return "{" + ", ".join(f"{key}: {_flow(entry.value)}" for key, entry in tree.entries.items()) + "}"
    if isinstance(tree, Seq):
        return "[" + ", ".join(map(_flow, tree.items)) + "]"
    return scalar_text(tree.value) if isinstance(tree, Leaf) else ""


def scalar_text(value: Scalar) -> str:
    """A scalar in one of the admitted forms."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, int):
        return str(value)
    return value if _WORD.match(value) and read_plain(value) == value else _quoted(value)


def _quoted(text: str) -> str:
    """In double quotes; what YAML does not admit as it is becomes an escape."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))


def _float_text(value: float) -> str:
    digits, mark, exponent = repr(value).partition("e")
    return digits + ("" if "." in digits else ".0") + mark + exponent
