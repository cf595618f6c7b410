"""A unit: everything gen needs to know of one kernel build, whatever planned it.

Invariants
 - Two equal units give the same bytes: nothing in a unit depends on the machine, the time or a path.
 - `expect` holds what the plan promises of the code object; a field that is None is not promised and
   therefore not checked, so a planner that leaves one out shows up in the manifest as `unchecked`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Hints = Mapping[str, bool | int | str]


@dataclass(frozen=True)
class Expect:
    """What the code object of a unit must show.

    `lds_bytes`, `kernarg_bytes`: static LDS and kernarg segment. `block`: threads of a workgroup. `mfma`:
    stage -> matrix instructions of one wave, by the source MLIR: loops of constant bounds counted out,
    branches taken; `mfma_open`: stages whose loops no plan can count out, not checked. `errata`: codes of the
    arch spec. `max_vgprs`: register budget, if planned.
    """

    lds_bytes: int | None = None
    lds_limit: int | None = None
    kernarg_bytes: int | None = None
    block: int | None = None
    mfma: Mapping[str, int] | None = None
    stages: tuple[str, ...] = ()
    errata: tuple[str, ...] = ()
    max_vgprs: int | None = None
    mfma_open: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "mfma": dict(self.mfma) if self.mfma is not None else None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Expect:
        """Inverse of `to_json`."""
        lists = ("stages", "errata", "mfma_open")
        return cls(**{**data, **{name: tuple(data[name]) for name in lists}})


@dataclass(frozen=True)
class Unit:
    """One kernel to render and compile.

    `id`: the build id. `target`: what the compiler is told (a gfx name out of an arch spec). `template`:
    name under `templates/`. `context`: names that the template may use. `specs`: (spec name, 12 digits of
    its digest). `costs`: rows of the header's cost table. `command`: regenerates the module. `reasons`:
    prints its numbers with their reasons. `hints`: FlyDSL's compile hints. `features`: target features to
    switch off, for example `-packed-fp32-ops` where a kernel cannot avoid what an erratum of its arch
    forbids. `abi`: the launch arguments as JSON, copied into the manifest.
    """

    id: str
    target: str
    template: str
    context: Mapping[str, object]
    specs: tuple[tuple[str, str], ...] = ()
    costs: tuple[tuple[str, str], ...] = ()
    command: str = ""
    reasons: str = ""
    expect: Expect = field(default_factory=Expect)
    hints: Hints = field(default_factory=dict)
    features: str = ""
    abi: tuple[Mapping[str, Any], ...] = ()


def digest(data: bytes | str) -> str:
    """SHA-256 in hex; short forms are its first 12 digits."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def canonical(data: object) -> str:
    """JSON text that is the same for the same values: sorted keys, no spaces, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
