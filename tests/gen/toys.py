"""Toy units: small templates under tests/gen/templates, each good or wrong in one way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flymono.gen.unit import Expect, Unit

TEMPLATES = Path(__file__).parent / "templates"


def unit(template: str = "good.py.j2", target: str = "gfx942", **context: object) -> Unit:
    """A unit of `template` for `target`; `context` overrides the template's names."""
    names: dict[str, object] = {
        "name": "toy",
        "block": 256,
        "grid": 4,
        "chain": 2,
        "stages": ("load", "work"),
    }
    return Unit(
        id=f"toy-{template.split('.')[0]}-{target}",
        target=target,
        template=template,
        context={**names, **context},
        specs=(("arch/" + target, "0123456789ab"),),
        costs=(("grid", "4 workgroups of 256 threads"), ("HBM bytes", "8,192")),
        command=f"flymono gen toy --arch {target}",
        expect=Expect(lds_bytes=0, kernarg_bytes=20, block=256, stages=("load", "work")),
    )


def promise(toy: Unit, **expect: object) -> Unit:
    """`toy` with other promises."""
    return replace(toy, expect=replace(toy.expect, **expect))  # type: ignore[arg-type]
