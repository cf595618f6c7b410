"""What a manifest says of one build, and the ABI table beside its code object."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..plan import Abi, Argument, BuildKey, KernelPlan


def sha256(data: bytes) -> str:
    """The digest that a manifest holds of a file, in hex."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Listed:
    """A file of a bundle: its name below the bundle's root, its length and digest."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> Listed:
        """The listing of `data`."""
        return cls(name, len(data), sha256(data))

    def fault(self, data: bytes) -> str:
        """How `data` differs from what is listed; empty if it does not."""
        if len(data) != self.size:
            return f"has {len(data):,} bytes, the manifest lists {self.size:,}"
        got = sha256(data)
        return "" if got == self.sha256 else f"has digest {got[:12]}, the manifest lists {self.sha256[:12]}"


@dataclass(frozen=True)
class Build:
    """One code object of a bundle.

    `kernel`: its symbol. `code`, `abi`: its files. `resources`: registers, LDS and instructions, by the
    names of the code object's metadata. `stage_ranges`: (stage, first PC, PC behind), counted from the
    kernel's entry. `host`: digest of what the host must agree on (`agree.host_digest`). `key`: the artefact
    in gen's store.
    """

    id: str
    kernel: str
    code: Listed
    abi: Listed
    resources: Mapping[str, Any]
    stage_ranges: tuple[tuple[str, int, int], ...]
    host: str
    key: str

    @property
    def of(self) -> BuildKey:
        """The build key."""
        return BuildKey.parse(self.id)

    @property
    def sha256(self) -> str:
        """Digest of the code object."""
        return self.code.sha256

    @property
    def files(self) -> tuple[Listed, Listed]:
        """Code object and ABI table."""
        return self.code, self.abi

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest, under its id."""
        data = asdict(self)
        del data["id"]
        return {
            **data,
            "resources": dict(self.resources),
            "stage_ranges": [list(r) for r in self.stage_ranges],
        }

    @classmethod
    def from_json(cls, id: str, data: Mapping[str, Any]) -> Build:
        """Inverse of `to_json`; TypeError, KeyError or ValueError if it is something else."""
        ranges = tuple((str(n), int(a), int(b)) for n, a, b in data["stage_ranges"])
        files = {name: Listed(**data[name]) for name in ("code", "abi")}
        return cls(**{**data, **files, "id": id, "stage_ranges": ranges})


def abi_bytes(plan: KernelPlan) -> bytes:
    """The ABI table of a build: its launch arguments without the words about them."""
    rows = [{k: v for k, v in asdict(a).items() if k != "doc"} for a in plan.abi.arguments]
    table = {"kernarg_bytes": plan.abi.kernarg_bytes, "arguments": rows}
    return (json.dumps(table, sort_keys=True, indent=0) + "\n").encode()


def abi_of(data: bytes) -> Abi:
    """The table of `abi_bytes`; ValueError, KeyError or TypeError if it is something else."""
    table = json.loads(data)
    rows = ({**row, "shape": tuple(row["shape"]), "doc": ""} for row in table["arguments"])
    return Abi(tuple(Argument(**row) for row in rows), int(table["kernarg_bytes"]))
