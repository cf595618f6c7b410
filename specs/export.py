"""JSON schemas of the spec files, for editors and for checks outside Python.

They are made from the pydantic models, so they cannot say anything else than the loader does; what only a
cross-check can tell is not in them. Committed under `specs/schemas/`; every YAML file names its schema.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from .loader import KINDS
from .schema import ArchSpec

SCHEMA_DIR = Path(__file__).resolve().parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON schema of one kind of file: `arch`, `model`, `build` or `numerics`."""
    schema = KINDS[kind].model_json_schema()
    if KINDS[kind] is ArchSpec:
        schema = _with_inheritance(schema)
    return {"$schema": DIALECT, **schema}


def schema_text(kind: str) -> str:
    """The text of the committed file."""
    return json.dumps(schema_of(kind), indent=2) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas; returns the files that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    stale = stale_schemas(folder)
    for path in stale:
        part = path.with_suffix(".json.part")
        part.write_text(schema_text(path.stem))
        part.replace(path)
    return stale


def stale_schemas(folder: Path = SCHEMA_DIR) -> list[Path]:
    """Committed schemas that are missing or differ from the models."""
    paths = [folder / f"{kind}.json" for kind in KINDS]
    return [path for path in paths if not path.is_file() or path.read_text() != schema_text(path.stem)]


def _with_inheritance(full: dict[str, Any]) -> dict[str, Any]:
    """An arch file states everything, or inherits and states what differs."""
    definitions = full.pop("$defs")
    full["properties"].pop("inherits")
    partial = {f"{name}Override": _optional(schema) for name, schema in definitions.items()}
    own = ("schema_version", "kind", "name", "title")
    override = _optional(full)
    override["properties"] = {k: v for k, v in override["properties"].items() if k not in own}
    override.pop("title", None)
    inheriting = {
        "type": "object",
        "description": "An arch that differs from another one in what `override` states.",
        "properties": {
            **{key: full["properties"][key] for key in own},
            "inherits": {"type": "string", "description": "name of the other arch spec"},
            "override": override,
        },
        "required": ["schema_version", "kind", "name", "inherits", "override"],
        "additionalProperties": False,
    }
    title = full.pop("title")
    return {"title": title, "anyOf": [full, inheriting], "$defs": {**definitions, **partial}}


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """A mapping's schema with no key required, at any depth; lists are replaced as a whole, so stay."""
    result = copy.deepcopy(schema)
    result.pop("required", None)
    for name, value in result.get("properties", {}).items():
        if "$ref" in value:
            result["properties"][name] = {**value, "$ref": value["$ref"] + "Override"}
    return result
