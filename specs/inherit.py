"""`inherits:` with an explicit `override:` block, for arch specs.

Invariants
 - Beside `inherits:` stand only `schema_version`, `kind`, `name`, `title` and `override`: what differs from
   the parent is in one block, nothing is merged in silence.
 - Mappings merge key by key, everything else (lists, scalars) is replaced as a whole.
 - Each value of the result keeps the place where it was written, so its origin can be told.
"""

from __future__ import annotations

from collections.abc import Mapping

from .findings import Code, near
from .tree import Document, Entry, Leaf, Map, Tree, plain

_OWN = ("schema_version", "kind", "name", "title", "inherits", "override")


def resolve(documents: Mapping[str, Document]) -> None:
    """Replace the tree of every document (by spec name) that inherits with the merged one, in place."""
    done: set[str] = set()
    for name in documents:
        _resolve(name, documents, (), done)


def parent_of(document: Document) -> Leaf | None:
    """The value of `inherits:`, if it is a name."""
    root = document.tree
    entry = root.entries.get("inherits") if isinstance(root, Map) else None
    return (
        entry.value
        if entry and isinstance(entry.value, Leaf) and isinstance(entry.value.value, str)
        else None
    )


def _resolve(name: str, documents: Mapping[str, Document], chain: tuple[str, ...], done: set[str]) -> None:
    document = documents[name]
    root = document.tree
    if name in done or not isinstance(root, Map):
        return
    parent = parent_of(document)
    if parent is None:
        if "override" in root.entries and "inherits" not in root.entries:
            document.refuse(Code.OVERRIDE_ALONE, root.entries["override"].where)
            document.tree = Map(root.where, {k: e for k, e in root.entries.items() if k != "override"})
        done.add(name)
        return
    key = str(parent.value)
    if key not in documents:
        document.refuse(
            Code.UNKNOWN_PARENT, parent.where, parent=key, hint=near(key, set(documents) - {name})
        )
        document.tree = None
    elif key == name or key in chain:
        document.refuse(Code.INHERIT_CYCLE, parent.where, chain=" -> ".join((*chain, name, key)))
        document.tree = None
    else:
        _resolve(key, documents, (*chain, name), done)
        base = documents[key].tree
        document.tree = _inherit(document, root, base, key) if isinstance(base, Map) else None
    done.add(name)


def _inherit(document: Document, root: Map, base: Map, parent: str) -> Map:
    for key, entry in root.entries.items():
        if key in base.entries and key not in _OWN:
            document.refuse(Code.OVERRIDE_ONLY, entry.where, key=key)
    own = {k: e for k, e in root.entries.items() if k != "override"}
    merged = Map(root.where, {**base.entries, **own})
    override = root.entries.get("override")
    if override is None:
        return merged
    if not isinstance(override.value, Map):
        document.refuse(
            Code.WRONG_TYPE, override.value.where, got="a value", want="a mapping of what differs"
        )
        return merged
    return _merge(document, merged, override.value, parent, "")


def _merge(document: Document, base: Map, over: Map, parent: str, path: str) -> Map:
    entries: dict[str, Entry] = dict(base.entries)
    for key, entry in over.entries.items():
        full = f"{path}{key}"
        old = base.entries.get(key)
        if old is None or (not path and key in _OWN and key != "title"):
            hint = near(key, set(base.entries) - set(_OWN))
            document.refuse(Code.OVERRIDE_UNKNOWN, entry.where, key=full, parent=parent, hint=hint)
        elif isinstance(old.value, Map) and isinstance(entry.value, Map):
            entries[key] = Entry(entry.where, _merge(document, old.value, entry.value, parent, f"{full}."))
        else:
            _same(document, old.value, entry, full)
            entries[key] = entry
    return Map(base.where, entries)


def _same(document: Document, old: Tree, entry: Entry, key: str) -> None:
    if plain(old) == plain(entry.value):
        document.refuse(Code.OVERRIDE_SAME, entry.where, key=key)
