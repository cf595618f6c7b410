"""The assembler against an independent decoder: same operation, same size, same register fields."""

import pytest
from asm import EXEC, VCC, AsmError, Dpp, Inline, Ins, Literal, encode, s, v
from cases import PACKED_NAMES, SCALAR_NAMES, VECTOR_NAMES, packed_cases, scalar_cases, vector_cases

NAMED = [
    # Bytes that LLVM 22 emits for these lines.
    (Ins("s_waitcnt", imm=0x0F70), "700f8cbf"),
    (Ins("s_endpgm"), "000081bf"),
    (Ins("s_nop", imm=1), "010080bf"),
    (Ins("v_mov_b32", (v(1),), (Literal(0x12345678),)), "ff02027e78563412"),
    (Ins("v_add_u32", (v(2),), (v(0), v(1))), "00030468"),
    (Ins("s_load_dwordx4", (s(4, 4),), (s(0, 2),), imm=16), "00010ac010000000"),
    (
        Ins(
            "v_mfma_scale_f32_16x16x128_f8f6f4",
            (v(0x9A, 4),),
            (v(0x9A, 8), v(0xAC, 8), Inline(0), v(0x17), v(0x10)),
            op_sel_hi=0,
        ),
        None,
    ),
    (Ins("v_mov_b32", (v(4),), (v(5),), dpp=Dpp(0xB1)), "fa02087e05b100ff"),
    (Ins("s_and_saveexec_b64", (s(0, 2),), (VCC,)), "6a2080be"),
    (Ins("s_mov_b64", (EXEC,), (s(0, 2),)), "0001febe"),
]


@pytest.mark.parametrize(
    ("ins", "want"), [pair for pair in NAMED if pair[1]], ids=lambda x: getattr(x, "name", None)
)
def test_known_bytes(ins: Ins, want: str) -> None:
    assert encode(ins).hex() == want


def test_scaled_mfma_is_one_16_byte_instruction() -> None:
    words = encode(NAMED[6][0])
    assert len(words) == 16
    assert [int.from_bytes(words[i : i + 4], "little") >> 16 for i in (0, 8)] == [0xD3AC, 0xD3AD]
    assert int.from_bytes(words[8:12], "little") == 0xD3AD089A
    assert int.from_bytes(words[4:8], "little") == 0x00022117


def test_what_cannot_be_encoded_is_refused() -> None:
    for ins in (
        Ins("v_add_u32", (v(0),), (v(0), s(1))),
        Ins("v_mov_b32", (v(0),), (Inline(65),)),
        Ins("v_add3_u32", (v(0),), (v(0), v(1), Literal(9))),
        Ins("buffer_load_dword", (v(0),), (v(1), s(4, 4), None), imm=4096),
    ):
        with pytest.raises(AsmError):
            encode(ins)


def _decoded(code: bytes) -> object:
    amd = pytest.importorskip(
        "tinygrad.renderer.amd", reason="tinygrad, the decoder of this test, is not installed"
    )
    return amd.decode_inst(code, "cdna")


def _operation(decoded: object) -> str:
    name = decoded.op.name.lower()
    for suffix in ("_e32", "_e64", "_sdwa", "_dpp"):
        name = name.removesuffix(suffix)
    return name


@pytest.mark.parametrize("name", VECTOR_NAMES + SCALAR_NAMES + PACKED_NAMES)
def test_fields_against_tinygrad(name: str) -> None:
    """Operation, size and destination of every generated instruction decode back."""
    cases = (
        scalar_cases(name)
        if name.startswith("s_")
        else packed_cases(name)
        if name in PACKED_NAMES
        else vector_cases(name)
    )
    for ins, _ in cases:
        code = encode(ins)
        decoded = _decoded(code)
        assert _operation(decoded) == name, ins
        assert decoded.size() == len(code), ins
        if hasattr(decoded, "vdst") and ins.dst and ins.dst[0].kind == "v":
            assert decoded.vdst.offset == ins.dst[0].code, ins
