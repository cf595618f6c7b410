"""Plans as JSON: complete, stable, ints and strings alone, so that a golden file can hold one."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from .unsupported import Unsupported

if TYPE_CHECKING:
    pass

Json = dict[str, "Json"] | list["Json"] | str | int | bool | None


def to_data(value: object) -> Json:
    """Dataclasses as objects in field order, tuples as lists; anything but ints and strings is an error."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_data(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in value]
    if value is None or isinstance(value, (str, int)):
        return value
    raise TypeError(f"a plan holds ints and strings, not {type(value).__name__}: {value!r}")


def to_json(plan: object) -> str:
    """The whole plan (or report, or statement), two-space indented, with its id first and a final newline."""
    data = to_data(plan)
    assert isinstance(data, dict)
    key = getattr(plan, "key", None)
    named: Json = {"id": key.id, **data} if key is not None else data
    return json.dumps(named, indent=2) + "\n"


def refusal_json(refused: Unsupported) -> str:
    """A refusal with all of its reasons and the nearest supported build."""
    data = {
        "unsupported": refused.subject,
        "reasons": [to_data(r) for r in refused.reasons],
        "nearest": refused.nearest,
    }
    return json.dumps(data, indent=2) + "\n"
