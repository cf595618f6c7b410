"""The manifest of a bundle: what is in it, from what it was made, and a seal over all of it.

    manifest.json      this
    code/<id>.hsaco    code objects
    abi/<id>.json      launch arguments of each

Invariants
 - Every file but the manifest is listed in it with length and digest; the seal is the digest of the
   manifest's other content. The seal finds accidents, not forgers.
 - The same specs, sources and compiler give the same bytes: no date, no path, no host fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .codes import BundleCode
from .entry import Build, sha256
from .errors import BundleError, BundleFinding

FORMAT = 1
NAME = "manifest.json"


def command_of(arch: str, tp: int, rest: str = "") -> str:
    """The command that makes the bundle of an arch and TP size; `rest` are further options."""
    return f"flymono bundle --arch {arch} --tp {tp} {rest}".strip() + " -o PATH"


ANY_COMMAND = "flymono bundle --arch ARCH --tp TP -o PATH"


@dataclass(frozen=True)
class Manifest:
    """`specs`: digest of each spec that builds depend on, by `kind/name`. `versions`: of flymono, FlyDSL,
    linker. `command`: makes this bundle again (finished builds come from the artefact store)."""

    arch: str
    tp: int
    command: str
    versions: Mapping[str, str]
    specs: Mapping[str, str]
    builds: Mapping[str, Build]
    seal: str = ""

    def to_bytes(self) -> bytes:
        """The sealed text."""
        content = {
            "format": FORMAT,
            "arch": self.arch,
            "tp": self.tp,
            "command": self.command,
            "versions": dict(self.versions),
            "specs": dict(self.specs),
            "builds": {name: build.to_json() for name, build in sorted(self.builds.items())},
        }
        return (json.dumps({**content, "seal": seal_of(content)}, sort_keys=True, indent=1) + "\n").encode()


def seal_of(content: Mapping[str, Any]) -> str:
    """Digest of a manifest's content but for its seal."""
    bare = {k: v for k, v in content.items() if k != "seal"}
    return sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode())


def parse(data: bytes, where: str) -> Manifest:
    """The manifest; BundleError if it is not one, or not whole."""
    try:
        content = json.loads(data)
        sealed = seal_of(content) == content["seal"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refused(BundleCode.MANIFEST, where, "is not readable: truncated or altered") from None
    if not sealed:
        raise refused(BundleCode.MANIFEST, where, "was altered: its seal does not fit its content", content)
    if content.get("format") != FORMAT:
        text = f"has format {content.get('format')}, this flymono reads {FORMAT}"
        raise refused(BundleCode.FORMAT, where, text, content)
    try:
        return _parsed(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"is sealed but not understood ({type(error).__name__}: {error})"
        raise refused(BundleCode.MANIFEST, where, text, content) from None


def _parsed(content: dict[str, Any]) -> Manifest:
    rest = {k: v for k, v in content.items() if k not in ("format", "builds")}
    return Manifest(**rest, builds={k: Build.from_json(k, v) for k, v in content["builds"].items()})


def refused(code: BundleCode, where: str, text: str, content: object = None) -> BundleError:
    """A refusal of a manifest; the command is its own where it can still be read."""
    said = content.get("command") if isinstance(content, dict) else None
    command = said if isinstance(said, str) and said.startswith("flymono bundle ") else ANY_COMMAND
    return BundleError([BundleFinding(code, where, f"the manifest {text}", command)])
