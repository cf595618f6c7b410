"""Small FlyDSL kernels, one machine feature each, for the program tests of the emulator.

Run as a script (`python fly_kernels.py ARCH FOLDER`) it compiles all of them for one arch without a GPU and
writes FOLDER/NAME.hsaco. It is meant for a child process: FlyDSL keeps process-wide state, and a failed
selection aborts.
"""

import os
import sys
import tempfile
from pathlib import Path

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import gpu, llvm, rocdl
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Float32, Int32, Int64

THREADS = 256
SC1 = 16
AGENT = "agent"
RELAXED = fx.AtomicOrdering.Monotonic


def pointer(ty, address, align=16):
    return fx.inttoptr(fx.PointerType.get(ty.ir_type, fx.AddressSpace.Global, align), address)


def resource(ty, address, nbytes):
    return fx.rocdl.get_buffer_rsrc(fx.rocdl.make_buffer_ptr(pointer(ty, address), nbytes))


@flyc.kernel(name="vadd", known_block_size=[THREADS, 1, 1])
def vadd(a: Int64, b: Int64, c: Int64, n: Int32):
    i = (fx.block_idx.x * THREADS + fx.thread_idx.x) * 4
    if i < n:
        total = fx.generic_load(pointer(Float32, a) + i, count=4) + fx.generic_load(
            pointer(Float32, b) + i, count=4
        )
        fx.generic_store(pointer(Float32, c) + i, total)


@fx.struct
class Partial:
    sums: fx.Array[Float32, 4, 16]


@flyc.kernel(name="reduce", known_block_size=[THREADS, 1, 1])
def reduce(x: Int64, out: Int64, unused: Int64, n: Int32):
    lds = fx.SharedAllocator().allocate(Partial)
    sums = lds.sums.peek()
    tid = fx.thread_idx.x
    v = fx.generic_load(pointer(Float32, x) + (fx.block_idx.x * THREADS + tid))
    for control in (0xB1, 0x4E, 0x141, 0x140):  # quads by permutation, then half rows, then rows by mirroring
        moved = rocdl.update_dpp(Float32.ir_type, v.ir_value(), v.ir_value(), control, 15, 15, True)
        v = v + Float32(moved)
    v = v + fx.shuffle_xor(v, 16, 64)
    v = v + fx.shuffle_xor(v, 32, 64)
    if tid % 64 == 0:
        fx.generic_store(sums.ptr + tid // 64, v)
    fx.barrier()
    if tid == 0:
        four = fx.generic_load(sums.ptr, count=4)
        fx.generic_store(pointer(Float32, out) + fx.block_idx.x, (four[0] + four[1]) + (four[2] + four[3]))


@fx.struct
class Tile:
    cells: fx.Array[Float32, 32 * 33, 16]


@flyc.kernel(name="transpose", known_block_size=[THREADS, 1, 1])
def transpose(x: Int64, out: Int64, unused: Int64, n: Int32):
    lds = fx.SharedAllocator().allocate(Tile)
    cells = lds.cells.peek()
    tid = fx.thread_idx.x
    row, column = tid // 8, tid % 8 * 4
    base = fx.block_idx.x * 1024
    four = fx.generic_load(pointer(Float32, x) + (base + row * 32 + column), count=4)
    for i in range_constexpr(4):
        fx.generic_store(cells.ptr + (row * 33 + column + i), four[i])
    fx.barrier()
    for i in range_constexpr(4):
        turned = fx.generic_load(cells.ptr + ((column + i) * 33 + row))
        fx.generic_store(pointer(Float32, out) + (base + row * 32 + column + i), turned)


@flyc.kernel(name="bounds", known_block_size=[THREADS, 1, 1])
def bounds(x: Int64, out: Int64, nbytes: Int64, n: Int32):
    """Loads four dwords a lane through a buffer of n bytes, stores them through one of n - 8 bytes."""
    at = fx.thread_idx.x * 16
    four = fx.rocdl.raw_ptr_buffer_load(fx.Int32x4.ir_type, resource(Int32, x, n), at, Int32(0), 0)
    rocdl.raw_ptr_buffer_store(
        four.ir_value() if hasattr(four, "ir_value") else four,
        resource(Int32, out, n - 8),
        at.ir_value(),
        Int32(0).ir_value(),
        aux=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0),
    )


@flyc.kernel(name="quantise", known_block_size=[THREADS, 1, 1])
def quantise(x: Int64, codes: Int64, scales: Int64, largest: Int32):
    """Each wave one row of 256: scale = largest / amax, codes = fp8(x * scale)."""
    tid = fx.thread_idx.x
    row = fx.block_idx.x * 4 + tid // 64
    at = row * 256 + tid % 64 * 4
    four = fx.generic_load(pointer(Float32, x) + at, count=4)
    top = fx.max(fx.max(fx.absf(four[0]), fx.absf(four[1])), fx.max(fx.absf(four[2]), fx.absf(four[3])))
    for distance in (1, 2, 4, 8, 16, 32):
        top = fx.max(top, fx.shuffle_xor(top, distance, 64))
    scale = Float32(largest) / top
    word = fx.rocdl.cvt_pk_fp8_f32(Int32.ir_type, four[0] * scale, four[1] * scale, Int32(0), False)
    word = fx.rocdl.cvt_pk_fp8_f32(Int32.ir_type, four[2] * scale, four[3] * scale, word, True)
    fx.generic_store(pointer(Int32, codes) + (row * 64 + tid % 64), Int32(word))
    if tid % 64 == 0:
        fx.generic_store(pointer(Float32, scales) + row, scale)


@flyc.kernel(name="handoff", known_block_size=[THREADS, 1, 1])
def handoff(data: Int64, out: Int64, flag: Int64, producer: Int32):
    """One workgroup writes 256 words and then a flag; every other one polls the flag and copies the words."""
    tid = fx.thread_idx.x
    ready = pointer(Int32, flag, 4)
    words = pointer(Int32, data, 4)
    if fx.block_idx.x == producer:
        fx.generic_store(words + tid, tid * 3 + 1, memory_order=RELAXED, syncscope=AGENT)
        fx.rocdl.s_waitcnt(vmcnt=0)
        fx.barrier()
        if tid == 0:
            fx.generic_store(ready, Int32(1), memory_order=RELAXED, syncscope=AGENT)
    if fx.block_idx.x != producer:
        if tid == 0:
            while fx.generic_load(ready, memory_order=RELAXED, syncscope=AGENT) != 1:
                fx.rocdl.s_sleep(1)
        fx.barrier()
        got = fx.generic_load(words + tid, memory_order=RELAXED, syncscope=AGENT)
        fx.generic_store(pointer(Int32, out) + (fx.block_idx.x * THREADS + tid), got)


@fx.struct
class Ring:
    cells: fx.Array[Int32, THREADS, 16]


@flyc.kernel(name="rounds", known_block_size=[THREADS, 1, 1])
def rounds(x: Int64, out: Int64, unused: Int64, steps: Int32):
    """`steps` times: each thread adds its right neighbour's cell to its own; two barriers a step."""
    lds = fx.SharedAllocator().allocate(Ring)
    cells = lds.cells.peek()
    tid = fx.thread_idx.x
    mine = fx.generic_load(pointer(Int32, x) + tid)
    fx.generic_store(cells.ptr + tid, mine)
    fx.barrier()
    for _step in range(0, steps, 1, unroll=1):
        other = fx.generic_load(cells.ptr + ((tid + 1) & (THREADS - 1)))
        fx.barrier()
        mine = mine + other
        fx.generic_store(cells.ptr + tid, mine)
        fx.barrier()
    fx.generic_store(pointer(Int32, out) + tid, mine)


@flyc.kernel(name="ticket", known_block_size=[THREADS, 1, 1])
def ticket(counter: Int64, out: Int64, unused: Int64, n: Int32):
    """Every wave draws one number; out[number] counts how often it was drawn."""
    tid = fx.thread_idx.x
    if tid % 64 == 0:
        drawn = fx.atomic_add(pointer(Int32, counter, 4), Int32(1), syncscope=AGENT)
        fx.generic_store(pointer(Int32, out) + drawn, Int32(1))


@fx.struct
class Room:
    words: fx.Array[Int32, 1024, 16]


@flyc.kernel(name="blank", known_block_size=[THREADS, 1, 1])
def blank(a: Int64, b: Int64, c: Int64, n: Int32):
    """Room for hand-written code: 256 s_nop, v0..v63, s0..s60 and 4 KB of LDS. Tests patch it from PC 0."""
    lds = fx.SharedAllocator().allocate(Room)
    fx.generic_store(lds.words.peek().ptr + fx.thread_idx.x, n)
    llvm.inline_asm(None, [], "s_nop 0\n" * 256, "~{v63},~{s60},~{memory}", has_side_effects=True)
    fx.generic_store(
        pointer(Int32, a) + fx.block_idx.x, fx.generic_load(lds.words.peek().ptr + (fx.thread_idx.x ^ 1))
    )


KERNELS = (vadd, reduce, transpose, bounds, quantise, handoff, rounds, ticket, blank)


def launcher(kernel):
    @flyc.jit
    def launch(a: Int64, b: Int64, c: Int64, n: Int32, groups: Int32, stream: fx.Stream = fx.Stream(None)):  # noqa: B008
        kernel(a, b, c, n).launch(grid=(groups, 1, 1), block=(THREADS, 1, 1), stream=stream)

    return launch


def code_object(text: str) -> bytes:
    """The linked ELF inside a compiled module."""
    with ir.Context() as context:
        context.load_all_available_dialects()
        module = ir.Module.parse(text)
        binary = next(op.operation for op in module.body.operations if op.operation.name == "gpu.binary")
        return gpu.ObjectAttr(ir.ArrayAttr(binary.attributes["objects"])[0]).object


def compile_all(arch: str, folder: Path) -> None:
    os.environ |= {"ARCH": arch, "FLYDSL_GPU_ARCH": arch}
    for kernel in KERNELS:
        launch = launcher(kernel)
        launch(0, 0, 0, 0, 1)
        _key, artefact = launch._last_compiled
        name = kernel.__name__ if hasattr(kernel, "__name__") else kernel._func.__name__
        (folder / f"{name}.hsaco").write_bytes(code_object(artefact.ir))


def main() -> None:
    arch, folder = sys.argv[1], Path(sys.argv[2])
    if not os.environ.get("ROCM_PATH"):
        tools = Path(tempfile.mkdtemp()) / "llvm" / "bin"
        tools.mkdir(parents=True)
        (tools / "ld.lld").write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang ld.lld "$@"\n')
        (tools / "ld.lld").chmod(0o755)
        os.environ["ROCM_PATH"] = str(tools.parents[1])
    compile_all(arch, folder)


if __name__ == "__main__":
    main()
