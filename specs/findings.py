"""What can be wrong with a spec: one catalogue of codes, each with its message and its fix.

Invariants
 - A finding names a place (`file:line:col`, all counted from 1), a code, what is wrong and what to do.
 - Every code is a member of `Code`; texts are templates here and nowhere else, so a page of all codes
   can be generated from this enum.
 - `UserError` is the base of every error that a user can cause, in any folder: the command line prints
   `render()` and exits with `exit_code`, and never shows a traceback for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any


class UserError(Exception):
    """An error that the user can mend. Subclasses override `render` to show places and fixes.

    >>> print(UserError("no such arch", fix="flymono spec show lists them").render())
    error: no such arch
        fix: flymono spec show lists them
    """

    exit_code = 2

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix

    def render(self) -> str:
        """The whole message for a terminal, without a trailing newline."""
        return f"error: {self}" + (f"\n    fix: {self.fix}" if self.fix else "")

    def to_json(self) -> dict[str, object]:
        """The same for `--json`: the message, its fix, and every finding as an object."""
        findings = [_plain(f) for f in getattr(self, "findings", ())]
        return {"error": str(self), "fix": self.fix} | ({"findings": findings} if findings else {})


def _plain(finding: Any) -> object:
    """A finding of any folder as JSON: by its own method, else field by field."""
    for method in ("as_dict", "to_json"):
        if hasattr(finding, method):
            return getattr(finding, method)()
    return asdict(finding) if is_dataclass(finding) and not isinstance(finding, type) else str(finding)


class SeveralErrors(UserError):
    """Errors that have nothing to do with each other, reported at once."""

    def __init__(self, errors: Sequence[UserError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, self.errors)))

    def render(self) -> str:
        return "\n".join(error.render() for error in self.errors)

    def to_json(self) -> dict[str, object]:
        return {"error": str(self), "errors": [error.to_json() for error in self.errors]}


def check_all(*checks: Callable[[], object]) -> None:
    """Run every check; raise what they raised: one error as it is, more as SeveralErrors."""
    errors: list[UserError] = []
    for check in checks:
        try:
            check()
        except SeveralErrors as several:
            errors += several.errors
        except UserError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else SeveralErrors(errors)


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """A place in a file; line and column count from 1."""

    file: str
    line: int = 1
    col: int = 1

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}:{self.col}"


def shown_path(path: str) -> str:
    """`path` relative to the working directory where it lies below it, else as it is."""
    if not Path(path).is_absolute():
        return path
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


@dataclass(frozen=True, slots=True, eq=False)  # eq=False: equal texts must not make two codes one
class Rule:
    """Texts of one code: what is wrong, and what to do about it (both `str.format` templates)."""

    text: str
    fix: str


class Code(Enum):
    """Every kind of finding. The member's name is the stable code that users see and search for."""

    # ---- the files themselves
    MISSING_ROOT = Rule(
        "`{path}` is not a folder of specs",
        "name a folder that holds arch/, model/, build/ and numerics/ (`flymono spec copy DIR` makes one)",
    )
    MISSING_FILES = Rule(
        "no {kind} spec: `{path}` holds no .yaml file", "add one, or copy the shipped folder"
    )
    UNREADABLE = Rule("cannot be read: {reason}", "make it a readable file")
    STRAY_FILE = Rule(
        "`{name}` is not read: spec files end in .yaml", "rename it to `{stem}.yaml` or move it away"
    )
    TOO_LARGE = Rule(
        "{bytes} bytes; a spec has at most {limit}", "split it, or check that this is a spec at all"
    )
    NOT_UTF8 = Rule("byte 0x{byte:02x} is not UTF-8", "save the file as UTF-8")
    EMPTY_FILE = Rule("no value in this file", "write the spec, or delete the file")
    WRONG_NAME = Rule(
        "name is `{name}` but the file is `{file}`", "rename the file to {name}.yaml, or the spec"
    )
    WRONG_KIND = Rule(
        "kind is `{kind}` in folder {folder}/", "write `kind: {folder}`, or move the file to {kind}/"
    )

    # ---- YAML
    YAML_SYNTAX = Rule("not YAML: {problem}", "{hint}")
    TAB = Rule("tab character", "indent and separate with spaces")
    SEVERAL_DOCUMENTS = Rule(
        "a second document starts here", "one spec per file: remove `---` and what follows"
    )
    ANCHORS = Rule(
        "{anchors} anchors (&) and {aliases} aliases (*): not allowed in a spec",
        "write the value out; an arch reuses another one through `inherits:`",
    )
    MERGE_KEY = Rule("merge key `<<`", "write the keys out; an arch reuses another one through `inherits:`")
    TAG = Rule("explicit tag `{tag}`", "remove it: types come from the schema")
    TOO_DEEP = Rule("nested deeper than {limit} levels", "flatten it; no spec needs this")
    TOO_MANY_NODES = Rule(
        "more than {limit} values in one file", "split it, or check that this is a spec at all"
    )
    DUPLICATE_KEY = Rule("key `{key}` stated twice, first at line {first}", "keep one of them")
    BAD_KEY = Rule("key {key} is not a plain name", "use a word as key, without quotes, brackets or `?`")
    EMPTY_VALUE = Rule("`{key}` has no value", "give it one, or remove the key")
    AMBIGUOUS = Rule("`{text}` {trap}", "{hint}")

    # ---- schema
    UNKNOWN_KEY = Rule("unknown key `{key}`{where}", "{hint}")
    MISSING_KEY = Rule("key `{key}` is missing{where}", "add `{key}:`{hint}")
    WRONG_TYPE = Rule("{got} where {want} must stand", "write {want}")
    NOT_ONE_OF = Rule("{got} is not one of {choices}", "{hint}")
    OUT_OF_RANGE = Rule("{got} is out of range: {rule}", "give a value that is {rule}")
    BAD_VALUE = Rule("{got} is refused: {rule}", "correct the value")

    # ---- inheritance
    UNKNOWN_PARENT = Rule("inherits from `{parent}`, which no arch spec is named", "{hint}")
    INHERIT_CYCLE = Rule("inherits from itself: {chain}", "break the chain")
    OVERRIDE_ONLY = Rule(
        "`{key}` stands beside `inherits:`",
        "move it into the `override:` block, so that what differs is explicit",
    )
    OVERRIDE_ALONE = Rule(
        "`override:` without `inherits:`", "add `inherits: ARCH`, or write the spec in full"
    )
    OVERRIDE_UNKNOWN = Rule("override of `{key}`, which `{parent}` does not state", "{hint}")
    OVERRIDE_SAME = Rule("override of `{key}` states the inherited value", "remove it")

    # ---- one arch
    CAPABILITY_UNSTATED = Rule("capability `{name}` is not stated", "add `{name}: true` or `{name}: false`")
    CAPABILITY_WITHOUT_MFMA = Rule(
        "capability `{name}` is claimed but the mfma table lacks {shape}",
        "add the entry, or set `{name}: false`",
    )
    MFMA_WITHOUT_CAPABILITY = Rule(
        "{shape} is in the mfma table but capability `{name}` is denied",
        "set `{name}: true`, or remove the entry",
    )
    MFMA_MISSING = Rule("the mfma table lacks {shape}, which {user} needs", "add the entry")
    MFMA_NAME = Rule("mfma `{name}` does not match its fields", "its fields spell `{spelled}`")
    MFMA_TWICE = Rule("mfma `{name}` is listed twice", "remove one of them")
    FP8_FLAVOUR = Rule("{what} does not fit FP8 flavour `{flavour}`", "{hint}")
    CACHE_BITS = Rule("cache modifier {what}", "{hint}")
    FIGURE = Rule("{what}", "{hint}")
    PASS_WIDTH = Rule(
        "pass width {width} is above the MFMA's {limit} columns", "write at most {limit}, or `auto`"
    )
    REPEATED = Rule("{what} lists `{value}` twice", "remove one of them")

    # ---- one model
    LAYER_COUNT = Rule(
        "compress_ratios has {got} entries; {layers} layers and {drafts} drafts make {want}",
        "one entry a backbone layer, then one a draft layer",
    )
    LAYER_RANGE = Rule("{what} names layer {layer}; layers are 0 .. {last}", "name a backbone layer")
    LAYER_ORDER = Rule("{what} is not in ascending order at {layer}", "sort the list and remove repeats")
    LAYER_SOURCE = Rule("layer sources: {what}", "{hint}")
    DIVIDES = Rule("{small} ({small_value}) does not divide {big} ({big_value})", "correct one of them")
    EXCEEDS = Rule("{what} is {value}, above {limit_name} ({limit})", "correct one of them")
    PREFIX_TAKEN = Rule(
        "prefix `{prefix}` is also model `{other}`'s", "build ids start with it: choose another"
    )

    # ---- builds and numerics
    UNKNOWN_ARCH = Rule("no arch spec is named `{name}`", "{hint}")
    UNKNOWN_MODEL = Rule("no model spec is named `{name}`", "{hint}")
    BUILD_TP = Rule(
        "TP{tp} is not of {arch}, which states {choices}", "use one of these, or add it to {arch}.yaml"
    )
    BUILD_ROWS = Rule("{rows} rows are above {arch}'s limit of {limit}", "use at most {limit} rows")
    BUILD_RATIO = Rule("no layer of {model} has ratio {ratio}", "use one of {choices}")
    BUILD_WINDOW = Rule("window width {window} {problem}", "{hint}")
    BUILD_INDEX = Rule(
        "index builds at ratio {ratio}: {model} has no index source layer of it", "use one of {choices}"
    )
    UNKNOWN_WIDTHS = Rule("no widths are named `{name}`", "{hint}")
    UNUSED_WIDTHS = Rule("no group has widths `{name}`", "name them as a group's rows, or remove them")
    BUILD_TWICE = Rule("build {id} is already listed at line {line}", "remove it from one of the groups")
    NO_STRATEGY = Rule(
        "{arch} has no FP8 matrix instruction, which every {kernel} build needs",
        "state its capabilities, or drop it",
    )
    BUDGET_TWICE = Rule(
        "stage {stage}, output {output} has a budget at line {line} already", "remove one of them"
    )
    BUDGET_EMPTY = Rule(
        "budget of {output} has rule `{rule}` but no terms", "name its terms, or write `rule: bits`"
    )
    BUDGET_BITS = Rule(
        "budget of {output} is `rule: bits` and names terms", "bits have no bound: remove one of them"
    )
    UNKNOWN_TERM = Rule("no term is named `{term}`", "{hint}")
    UNUSED_TERM = Rule("no budget uses term `{term}`", "name it in a budget, or remove it")

    # ---- what only the plan or the compiler can tell
    PLAN_REFUSES = Rule("no plan: {what}", "{hint}")
    PROBE_REFUSES = Rule(
        "{claim}: the compiler refuses it for {arch}: {reason}",
        "state what the GPU has; no build of a value that the compiler refuses can exist",
    )
    PROBE_ADMITS = Rule("{claim} is denied, but the compiler accepts it for {arch}", "set it to true")

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return getattr, (Code, self.name)  # by name: rules have no equality to find a member by

    def at(self, where: Where, /, **values: object) -> Finding:
        """The finding of this code at `where`; `values` fill the templates (a missing one is a bug)."""
        return Finding(where, self, self.value.text.format(**values), self.value.fix.format(**values))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where, and what to do."""

    where: Where
    code: Code
    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.code.name} {self.text}\n    fix: {self.fix}"

    def as_dict(self) -> dict[str, object]:
        """For `--json`: file, line, col, code, text, fix."""
        return {
            "file": self.where.file, "line": self.where.line, "col": self.where.col,
            "code": self.code.name, "text": self.text, "fix": self.fix,
        }  # fmt: skip


class SpecError(UserError):
    """The specs are refused; `findings` holds all findings of all files, in file order."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(sorted(set(findings), key=lambda f: (f.where, f.code.name, f.text)))
        super().__init__(count(len(self.findings), "finding") + " in the specs")

    def render(self) -> str:
        return "\n".join([*map(str, self.findings), f"error: {self}"])

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Finding, ...]]]:
        return SpecError, (self.findings,)


def count(n: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{n} {noun}" + ("" if n == 1 else "s")


def near(name: str, choices: Iterable[str]) -> str:
    """A fix for a misspelled name: the nearest of `choices`, or all of them."""
    known = sorted(choices)
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return "use one of " + ", ".join(known) if known else "there is none to choose from"
