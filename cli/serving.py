"""Options that describe a server, shared by `why` and `plan model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ..specs.findings import UserError, check_all, near

if TYPE_CHECKING:
    from ..runtime.plan.layers import Host
    from ..specs import Specs

Arch = Annotated[str | None, typer.Option(help="Arch spec, for example gfx942; or name a --gpu.")]
Gpu = Annotated[str | None, typer.Option(help="Product, for example mi300x: its arch and compute units.")]
Units = Annotated[int | None, typer.Option("--compute-units", help="Compute units that the GPU shows.")]
Tp = Annotated[int | None, typer.Option(help="Tensor-parallel size; default: the arch's first.")]
Ep = Annotated[bool, typer.Option("--ep", help="Expert parallel.")]
Dp = Annotated[int, typer.Option("--dp", help="Data-parallel size.")]
Pp = Annotated[int, typer.Option("--pp", help="Pipeline-parallel size.")]
Cp = Annotated[int, typer.Option("--cp", help="Context-parallel size (decode or prefill).")]
Indexer = Annotated[str, typer.Option(help="The indexer's key format: fp8 (vLLM's default) or mxfp4.")]
KvDtype = Annotated[str | None, typer.Option("--kv-dtype", help="KV cache dtype; default: fp8_ds_mla.")]
Moe = Annotated[
    str | None, typer.Option("--moe-backend", help="Backend of the routed experts, as vLLM names it.")
]
NoSeam = Annotated[bool, typer.Option("--no-fused-seam", help="The host has no fused mHC seam.")]
Drafts = Annotated[
    int | None, typer.Option(help="Drafts a request; default: the model's, 0: no draft model.")
]
Features = Annotated[
    list[str] | None, typer.Option("--feature", help="What else is on, for example lora; repeat it.")
]
Widths = Annotated[str, typer.Option(help="Step widths of the bundle: shipped, any, or rows by commas.")]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="As with FLYMONO_STRICT=0: what would stop the server falls back.")
]
Json = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]

INDEXERS = ("fp8", "mxfp4")


@dataclass(frozen=True)
class Said:
    """The options as given."""

    arch: str | None = None
    gpu: str | None = None
    units: int | None = None
    tp: int | None = None
    ep: bool = False
    dp: int = 1
    pp: int = 1
    cp: int = 1
    indexer: str = "fp8"
    kv_dtype: str | None = None
    moe_backend: str | None = None
    no_fused_seam: bool = False
    drafts: int | None = None
    features: tuple[str, ...] = ()
    widths: str = "shipped"


def host_of(specs: Specs, said: Said, *checks: Callable[[], object]) -> Host:
    """The host that the options describe. Raises all that is wrong with them, and with `checks`, at once."""
    from ..runtime.plan.deployment import KV_DTYPE
    from ..runtime.plan.layers import FEATURES, Host

    check_all(
        lambda: _arch(specs, said),
        lambda: positive("--dp", said.dp),
        lambda: positive("--pp", said.pp),
        lambda: positive("--cp", said.cp),
        lambda: positive("--tp", 1 if said.tp is None else said.tp),
        lambda: positive("--compute-units", 1 if said.units is None else said.units),
        lambda: positive("--drafts", 0 if said.drafts is None else said.drafts, 0),
        lambda: one_of("--indexer", said.indexer, INDEXERS),
        *(partial(one_of, "--feature", name, FEATURES) for name in said.features),
        lambda: _rows(said.widths),
        *checks,
    )
    arch, units = _arch(specs, said)
    spec = specs.arch.get(arch)
    tp = said.tp if said.tp is not None else (spec.tp[0] if spec is not None else 1)
    return Host(
        arch,
        tp,
        compute_units=units if said.units is None else said.units,
        kv_dtype=said.kv_dtype or KV_DTYPE,
        indexer=said.indexer,
        moe_backend=said.moe_backend,
        fused_seam=False if said.no_fused_seam else None,
        expert_parallel=said.ep,
        dp=said.dp,
        pp=said.pp,
        cp=said.cp,
        drafts=said.drafts,
        features=said.features,
        builds=_builds(specs, said.widths, arch, tp),
    )


def one_of(option: str, value: str, known: Iterable[str]) -> None:
    """UserError unless `value` is one of `known`."""
    if value not in (names := list(known)):
        raise UserError(f"{option} is {value}", fix=near(value, names))


def positive(option: str, value: int, least: int = 1) -> None:
    """UserError for a number below `least`."""
    if value < least:
        raise UserError(f"{option} is {value}", fix=f"write {least} or more")


def _arch(specs: Specs, said: Said) -> tuple[str, int | None]:
    """Arch and compute units, of the product where one is named."""
    if said.gpu is None:
        if said.arch is None:
            raise UserError("no GPU is named", fix="--arch gfx942, or --gpu mi300x")
        return said.arch, None
    archs = [
        (a.name, product, n) for a in specs.arch.values() for product, n in a.machine.compute_units.items()
    ]
    products = {product.lower(): (arch, units) for arch, product, units in archs}
    name = said.gpu.lower()
    if name not in products:
        raise UserError(f"no arch spec lists a {said.gpu}", fix=near(name, products))
    if said.arch not in (None, products[name][0]):
        raise UserError(
            f"--gpu {said.gpu} is {products[name][0]}, --arch says {said.arch}", fix="leave one out"
        )
    return products[name]


def _rows(text: str) -> set[int] | None:
    """Widths that are named one by one; None where `text` is a word."""
    if text in ("shipped", "any"):
        return None
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UserError(f"--widths is {text}", fix="write shipped, any, or rows by commas, for example 6,12")
    return {int(part) for part in parts}


def _builds(specs: Specs, widths: str, arch: str, tp: int) -> frozenset[str] | None:
    """Ids of the bundle's builds: what ships of this arch and TP size, at other widths where named."""
    if widths == "any":
        return None
    from dataclasses import replace

    from ..gen.units import shipped

    keys = [key for key in shipped(specs) if (key.arch, key.tp) == (arch, tp)]
    if (rows := _rows(widths)) is not None:
        keys = [replace(key, rows=s) for key in keys for s in rows]
    return frozenset(key.id for key in keys)
