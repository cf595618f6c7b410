"""Which plain YAML scalars a spec may hold, and what each means.

YAML 1.1 (what PyYAML reads), YAML 1.2 and people disagree on many plain scalars: `no`, `08`, `1e5`,
`1_000`, `12:30`, `~`. A spec admits only forms on which all agree:

| form | means |
|---|---|
| `0`, `17`, `-3`, `0x4c` | int |
| `1.0`, `-0.5`, `1.0e-6` | float: digits on both sides of the dot; an exponent only after a dot |
| `true`, `false` | bool |
| `"..."`, `'...'` | str |
| a word | str, if no YAML version reads it as anything else |

Everything else is a finding whose fix names the forms that do not surprise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Scalar = bool | int | float | str

_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})\Z|0x[0-9a-fA-F]{1,15}\Z")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][-+]?[0-9]{1,3})?\Z")
_BOOL = {"true": True, "false": False}

_NUMBER_LIKE = re.compile(
    r"""[-+]?(
        [0-9][0-9_]*                        # 08, 1_000, +5, too long
      | 0[oO][0-7_]+ | 0[bB][01_]+ | 0[xX][0-9a-fA-F_]+
      | ([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?   # 5., .5, 1e5
      | [0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?       # 12:30
      | \.(inf|Inf|INF)
    )\Z|\.(nan|NaN|NAN)\Z""",
    re.VERBOSE,
)
_BOOL_LIKE = re.compile(r"(y|n|yes|no|on|off|true|false)\Z", re.IGNORECASE)
_NULL_LIKE = re.compile(r"(~|null)\Z", re.IGNORECASE)
_DATE_LIKE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?\Z")


@dataclass(frozen=True, slots=True)
class Trap:
    """A plain scalar that readers of YAML disagree about."""

    text: str
    trap: str
    hint: str


def read_plain(text: str) -> Scalar | Trap:
    """The value of a plain (unquoted) scalar, or why it is refused. `text` is not empty."""
    if text in _BOOL:
        return _BOOL[text]
    if _INT.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    return _trap(text) or text


def _trap(text: str) -> Trap | None:
    if _BOOL_LIKE.match(text):
        return Trap(
            text, "is a boolean for some YAML readers", f'write true or false, or "{text}" for the word'
        )
    if _NULL_LIKE.match(text):
        return Trap(text, "means nothing at all", f'leave the key out, or write "{text}" for the word')
    if _DATE_LIKE.match(text):
        return Trap(text, "is a date for some YAML readers", f'write "{text}"')
    if text == "=":
        return Trap(text, "is a default value mark for some YAML readers", 'write "="')
    if _NUMBER_LIKE.match(text):
        return Trap(text, "is read as different numbers, or as text, by YAML readers", _number_hint(text))
    return None


def _number_hint(text: str) -> str:
    bare = text.replace("_", "").lstrip("+")
    if re.fullmatch(r"-?0+[0-9]+", bare):
        return f'write {int(bare)} (or 0x.. for hex), or "{text}" for the text'
    if re.fullmatch(r"[0-9]{1,18}", bare):
        return f"write {bare}"
    try:
        value = float(bare)
    except ValueError:
        return "write an int (17, 0x4c) or a float with a dot (1.0, 1.0e-6)"
    if not _FLOAT.match(repr(value)):
        return "write an int (17, 0x4c) or a float with a dot (1.0, 1.0e-6)"
    return f"write {value!r}" + (f", or {int(value)} for an int" if value.is_integer() else "")


def describe(value: object) -> str:
    """How a message names a value: its kind and its text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'text "{value if len(value) <= 40 else value[:37] + "..."}"'
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, tuple | list):
        return "a list"
    return f"{value!r}"
