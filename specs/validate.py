"""From a tree to a frozen model: every pydantic error becomes a finding at its line and column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .findings import Code, Finding, Where, near
from .scalars import describe
from .tree import Document, Step, Tree, follow, plain

M = TypeVar("M", bound=BaseModel)

_WANT = {
    "int_type": "an int",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_RULES = {
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
    "too_long": "a list of at most {max_length} items",
    "too_short": "a list of at least {min_length} items",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One pydantic error, mapped to the deepest part of the tree that its path reaches."""

    path: tuple[Step, ...]
    rest: tuple[Step, ...]
    error: ErrorDetails


def validate(model: type[M], document: Document) -> M | None:
    """The model of the document's tree, or None with findings added to the document."""
    if document.tree is None:
        return None
    try:
        return model.model_validate(plain(document.tree))
    except ValidationError as error:
        document.findings.extend(_findings(model, document, document.tree, error.errors(include_url=False)))
        return None


def _findings(
    model: type[BaseModel], document: Document, tree: Tree, errors: Sequence[ErrorDetails]
) -> Iterator[Finding]:
    problems = [_problem(tree, error) for error in errors]
    for path, group in groupby(problems, key=lambda p: p.path):
        found = follow(tree, path)
        same_place = list(group)
        wrong = [p for p in same_place if p.error["type"] not in ("missing", "extra_forbidden")]
        for problem in same_place:
            if problem.error["type"] == "missing":
                yield _missing(found.key, problem)
            elif problem.error["type"] == "extra_forbidden" and found.key not in document.refused:
                yield _unknown(found.key, path, _fields(model, path[:-1]))
        if wrong and not {found.key, found.value.where} & document.refused:
            yield _wrong(tree, found.key, found.value, wrong)


def _problem(tree: Tree, error: ErrorDetails) -> Problem:
    location = error["loc"]
    depth = follow(tree, location).depth
    return Problem(tuple(location[:depth]), tuple(location[depth:]), error)


def _missing(where: Where, problem: Problem) -> Finding:
    return Code.MISSING_KEY.at(where, key=problem.rest[-1], where=_inside(problem.path), hint="")


def _unknown(where: Where, path: Sequence[Step], known: Sequence[str]) -> Finding:
    key = str(path[-1])
    return Code.UNKNOWN_KEY.at(
        where, key=key, where=_inside(path[:-1]), hint=f"remove it, or: {near(key, known)}"
    )


def _wrong(tree: Tree, key: Where, value: Tree, problems: Sequence[Problem]) -> Finding:
    """One finding for all errors at one value (the members of a union each have theirs)."""
    first = problems[0].error
    if "[key]" in problems[0].rest:
        name = str(problems[0].path[-1])
        choices = _choices(first)
        return Code.UNKNOWN_KEY.at(
            key, key=name, where=_inside(problems[0].path[:-1]), hint=near(name, choices)
        )
    got = describe(plain(value))
    if len(problems) > 1:
        want = " or ".join(dict.fromkeys(_alternative(p.error) for p in problems))
        return Code.WRONG_TYPE.at(value.where, got=got, want=want)
    if first["type"] in _WANT:
        return Code.WRONG_TYPE.at(value.where, got=got, want=_WANT[first["type"]])
    if first["type"] == "literal_error":
        choices = _choices(first)
        hint = near(str(plain(value)), choices)
        return Code.NOT_ONE_OF.at(value.where, got=got, choices=", ".join(choices), hint=hint)
    if first["type"] in _RULES:
        rule = _RULES[first["type"]].format(**first.get("ctx", {}))
        return Code.OUT_OF_RANGE.at(value.where, got=got, rule=rule)
    return Code.BAD_VALUE.at(value.where, got=got, rule=first["msg"])


def _alternative(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return " or ".join(f"`{c}`" for c in _choices(error))
    if error["type"] in _RULES:
        return "a number " + _RULES[error["type"]].format(**error.get("ctx", {}))
    return _WANT.get(error["type"], error["msg"])


def _choices(error: ErrorDetails) -> list[str]:
    expected = str(error.get("ctx", {}).get("expected", ""))
    return [part.strip().strip("'") for part in expected.replace(" or ", ",").split(",") if part.strip()]


def _inside(path: Sequence[Step]) -> str:
    """` in workgroup`, ` in mfma[2]`, or nothing at the top."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return f" in `{text}`" if text else ""


def _fields(model: type[BaseModel], path: Sequence[Step]) -> list[str]:
    """The keys that the model has at `path` (none if the schema has no model there)."""
    current: Any = model
    for step in path:
        if isinstance(step, int):
            continue
        field = current.model_fields.get(step) if _is_model(current) else None
        current = next(_models(field.annotation), None) if field else None
    return list(current.model_fields) if _is_model(current) else []


def _is_model(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def _models(annotation: Any) -> Iterator[Any]:
    if _is_model(annotation):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)
