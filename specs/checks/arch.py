"""Is an arch spec consistent in itself? (Whether it is *true* is asked of the compiler, by the probes.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from ..findings import Code, Finding
from ..schema import ArchSpec, Capability, Mfma
from ..source import Source
from .context import repeats

# capability -> the matrix instruction (m, n, k, a, b, scaled) that it stands for
_SHAPES: dict[str, tuple[int, int, int, str, str, bool]] = {
    "mfma_scale_f8f6f4": (16, 16, 128, "f8f6f4", "f8f6f4", True),
    "mfma_fp8": (16, 16, 32, "fp8", "fp8", False),
    "mfma_bf16_k32": (16, 16, 32, "bf16", "bf16", False),
}
# matrix instructions that every arch must have, with who needs them
_ALWAYS = (((16, 16, 16, "bf16", "bf16", False), "every bf16 stage"),)

# E4M3 flavours: exponent bias, how NaN is written, largest finite value (code 0x7e / 0x7f)
_FLAVOURS = {"ocp": (7, "0x7f_0xff", 448.0), "fnuz": (8, "0x80", 240.0)}


def check_arch(source: Source, arch: ArchSpec) -> Iterator[Finding]:
    """All findings of one arch."""
    yield from _capabilities(source, arch)
    yield from _mfma_names(source, arch)
    yield from _fp8(source, arch)
    yield from _cache(source, arch)
    yield from _figures(source, arch)
    yield from repeats(source, "tp", arch.tp, "tp")
    yield from repeats(source, "errata", arch.errata, "errata")


def _shape(mfma: Mfma) -> tuple[int, int, int, str, str, bool]:
    return mfma.m, mfma.n, mfma.k, mfma.a, mfma.b, mfma.scaled


def spelled(shape: tuple[int, int, int, str, str, bool]) -> str:
    """The name that a shape's fields spell, for example `f32_16x16x32_fp8_fp8`."""
    m, n, k, a, b, scaled = shape
    types = f"{a}_{b}" if a == "fp8" or a != b else a
    return f"{'scale_' if scaled else ''}f32_{m}x{n}x{k}_{types}"


def _capabilities(source: Source, arch: ArchSpec) -> Iterator[Finding]:
    listed = {_shape(m): i for i, m in enumerate(arch.mfma)}
    for name in get_args(Capability):
        if name not in arch.capabilities:
            yield Code.CAPABILITY_UNSTATED.at(source.key_at("capabilities"), name=name)
    for capability, shape in _SHAPES.items():
        claimed = arch.capabilities.get(capability)  # type: ignore[call-overload]
        text = "`" + spelled(shape) + "`"
        if claimed is True and shape not in listed:
            path = ("capabilities", capability)
            yield source.finding(Code.CAPABILITY_WITHOUT_MFMA, *path, name=capability, shape=text)
        if claimed is False and shape in listed:
            yield source.finding(
                Code.MFMA_WITHOUT_CAPABILITY, "mfma", listed[shape], name=capability, shape=text
            )
    for shape, user in _ALWAYS:
        if shape not in listed:
            yield Code.MFMA_MISSING.at(source.key_at("mfma"), shape=f"`{spelled(shape)}`", user=user)


def _mfma_names(source: Source, arch: ArchSpec) -> Iterator[Finding]:
    seen: set[str] = set()
    for i, mfma in enumerate(arch.mfma):
        if mfma.name != spelled(_shape(mfma)):
            yield source.finding(
                Code.MFMA_NAME, "mfma", i, "name", name=mfma.name, spelled=spelled(_shape(mfma))
            )
        if mfma.name in seen:
            yield source.finding(Code.MFMA_TWICE, "mfma", i, "name", name=mfma.name)
        seen.add(mfma.name)


def _fp8(source: Source, arch: ArchSpec) -> Iterator[Finding]:
    flavour = arch.fp8.flavour
    bias, nan, largest = _FLAVOURS[flavour]
    wrong = {
        "exponent_bias": (arch.fp8.exponent_bias != bias, f"its exponent bias is {bias}"),
        "nan": (arch.fp8.nan != nan, f'write nan: "{nan}"'),
        "max": (
            arch.fp8.max > largest or not _is_e4m3(arch.fp8.max),
            f"a value of the format, at most {largest}",
        ),
    }
    for key, (bad, hint) in wrong.items():
        if bad:
            what = f"{key} {getattr(arch.fp8, key)}"
            yield source.finding(Code.FP8_FLAVOUR, "fp8", key, what=what, flavour=flavour, hint=hint)
    if flavour == "fnuz" and arch.capabilities.get("mfma_scale_f8f6f4"):
        yield source.finding(
            Code.FP8_FLAVOUR, "fp8", "flavour", what="mfma_scale_f8f6f4", flavour=flavour,
            hint="scaled matrix instructions read OCP bytes: write flavour: ocp, or deny the capability",
        )  # fmt: skip


def _is_e4m3(value: float) -> bool:
    """Whether a normal number needs at most four significant bits."""
    numerator, denominator = value.as_integer_ratio()
    odd = numerator
    while odd % 2 == 0:
        odd //= 2
    return odd < 16 and denominator & (denominator - 1) == 0


def _cache(source: Source, arch: ArchSpec) -> Iterator[Finding]:
    cache = arch.cache
    bits = {"sc0": cache.sc0, "nt": cache.nt, "sc1": cache.sc1}
    for i, (name, bit) in enumerate(bits.items()):
        twin = next((n for n in list(bits)[:i] if bits[n] == bit), None)
        if bit <= 0 or bit & (bit - 1):
            yield source.finding(
                Code.CACHE_BITS, "cache", name, what=f"{name} = {bit}", hint="one bit: 1, 2, 4, ..."
            )
        elif twin:
            what = f"{name} = {bit} is {twin}'s bit too"
            yield source.finding(Code.CACHE_BITS, "cache", name, what=what, hint="give each its own bit")
    known = cache.sc0 | cache.nt | cache.sc1
    for name in ("device_scope", "system_scope"):
        aux = getattr(cache, name)
        if aux <= 0 or aux & ~known:
            yield source.finding(
                Code.CACHE_BITS, "cache", name, what=f"{name} = {aux} has bits beside sc0, nt and sc1",
                hint=f"combine {cache.sc0} (sc0), {cache.nt} (nt) and {cache.sc1} (sc1)",
            )  # fmt: skip
    if cache.device_scope & ~cache.system_scope:
        what = f"system_scope = {cache.system_scope} lacks bits of device_scope = {cache.device_scope}"
        yield source.finding(
            Code.CACHE_BITS, "cache", "system_scope", what=what, hint="the wider scope holds the narrower"
        )


def _figures(source: Source, arch: ArchSpec) -> Iterator[Finding]:
    group, registers = arch.workgroup, arch.registers
    if group.wave_size not in (32, 64):
        yield source.finding(
            Code.FIGURE,
            "workgroup",
            "wave_size",
            what=f"wave_size {group.wave_size}",
            hint="waves have 32 or 64 lanes",
        )
    elif group.max_threads % group.wave_size:
        what = f"max_threads {group.max_threads} is not whole waves of {group.wave_size}"
        yield source.finding(
            Code.FIGURE, "workgroup", "max_threads", what=what, hint="write a multiple of wave_size"
        )
    if registers.vgprs_per_simd_lane % registers.vgpr_granule:
        what = f"{registers.vgprs_per_simd_lane} registers are not whole granules of {registers.vgpr_granule}"
        yield source.finding(Code.FIGURE, "registers", "vgpr_granule", what=what, hint="correct one of them")
    if arch.memory.line_bytes & (arch.memory.line_bytes - 1):
        what = f"line_bytes {arch.memory.line_bytes} is not a power of two"
        yield source.finding(
            Code.FIGURE, "memory", "line_bytes", what=what, hint="cache lines have 64, 128, ... bytes"
        )
    if not arch.machine.compute_units:
        yield source.finding(
            Code.FIGURE, "machine", "compute_units", what="no product is named", hint="PRODUCT: compute units"
        )
    for key in ("mfma", "tp"):
        if not getattr(arch, key):
            yield source.finding(Code.FIGURE, key, what=f"{key} is empty", hint="list at least one")
    width = arch.gemv.pass_width
    if width != "auto" and arch.mfma and width > max(m.n for m in arch.mfma):
        limit = max(m.n for m in arch.mfma)
        yield source.finding(Code.PASS_WIDTH, "gemv", "pass_width", width=width, limit=limit)
