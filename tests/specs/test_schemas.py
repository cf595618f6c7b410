"""The committed JSON schemas: current, and named by every spec file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flymono.specs import default_root
from flymono.specs.export import SCHEMA_DIR, schema_text, stale_schemas, write_schemas
from flymono.specs.loader import KINDS
from flymono.specs.tree import plain, read

FILES = [p for kind in KINDS for p in sorted((default_root() / kind).glob("*.yaml"))]


def test_committed_schemas_are_current() -> None:
    assert stale_schemas() == [], "run: flymono spec schema"


def test_write_and_stale(tmp_path: Path) -> None:
    assert [p.name for p in write_schemas(tmp_path)] == [f"{kind}.json" for kind in KINDS]
    assert write_schemas(tmp_path) == []
    (tmp_path / "arch.json").write_text("{}")
    assert [p.name for p in stale_schemas(tmp_path)] == ["arch.json"]


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.name}" for p in FILES])
def test_each_file_names_its_schema_and_fits_it(path: Path) -> None:
    assert (
        path.read_text().splitlines()[0]
        == f"# yaml-language-server: $schema=../schemas/{path.parent.name}.json"
    )
    assert (
        path.parent / f"../schemas/{path.parent.name}.json"
    ).resolve() == SCHEMA_DIR / f"{path.parent.name}.json"
    schema = json.loads(schema_text(path.parent.name))
    tree = read(path).tree
    assert tree is not None
    assert fits(plain(tree), schema, schema)
    assert not fits({**plain(tree), "colour": 1}, schema, schema)  # type: ignore[dict-item]


def test_an_inheriting_arch_fits_the_schema() -> None:
    schema = json.loads(schema_text("arch"))
    child: dict[str, Any] = {"schema_version": 1, "kind": "arch", "name": "a", "inherits": "b"}
    assert fits({**child, "override": {"workgroup": {"lds_bytes": 1}, "tp": (1,)}}, schema, schema)
    assert not fits({**child, "override": {"workgroup": {"lds": 1}}}, schema, schema)
    assert not fits({**child, "override": {"name": "c"}}, schema, schema)
    assert not fits({**child, "tp": (1,)}, schema, schema)


KEYWORDS = """
    $defs $ref $schema title description default type properties required enum const additionalProperties
    propertyNames items prefixItems minItems maxItems anyOf minimum maximum exclusiveMinimum
"""


def fits(value: object, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """The part of JSON Schema that our schemas use; an unknown keyword is an error of this test."""
    known = set(KEYWORDS.split())
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return any(fits(value, one, root) for one in schema["anyOf"])
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    return _fits_type(value, schema, root)


def _fits_type(value: object, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if kind == "object":
        return isinstance(value, dict) and _fits_object(value, schema, root)
    if kind == "array":
        items = [*schema.get("prefixItems", ())]
        return isinstance(value, tuple) and all(
            fits(item, items[i] if i < len(items) else schema.get("items", {}), root)
            for i, item in enumerate(value)
        )
    if kind in ("integer", "number"):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (kind == "number" or isinstance(value, int)) and _in_range(float(value), schema)  # type: ignore[arg-type]
    return kind is None or isinstance(value, {"string": str, "boolean": bool, "null": type(None)}[kind])


def _fits_object(value: dict[str, object], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value):
        return False
    extra = [item for key, item in value.items() if key not in properties]
    if extra and (
        rest is False or (isinstance(rest, dict) and not all(fits(item, rest, root) for item in extra))
    ):
        return False
    return all(fits(item, properties[key], root) for key, item in value.items() if key in properties)


def _in_range(value: float, schema: dict[str, Any]) -> bool:
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    return (
        (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)
    )
