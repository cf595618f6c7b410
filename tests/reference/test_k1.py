"""The whole of K1: forms agree, rows are independent, padding is harmless, flavours are one computation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from flymono.reference import front
from flymono.reference.case import K1Case, make_case
from flymono.reference.formats import F32, F64
from flymono.reference.k1 import Form, k1_outputs
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.reference.weights import dequantise, magnitudes, random_weights
from flymono.specs.schema import ModelSpec

Bench = Callable[..., Any]


def run(b: Any, case: K1Case | None = None, form: Form = "promised") -> Any:
    return k1_outputs(case or b.case, b.weights, b.sizes, b.order, form)


@pytest.mark.parametrize("gemv", ["scaled_mfma", "fp8_mfma_fma"])
def test_forms_agree(bench: Bench, gemv: str) -> None:
    b = bench(gemv=gemv)
    promised, exact = run(b), run(b, form="exact")
    assert torch.allclose(promised.comb_out.to(F64), exact.comb_out, rtol=1e-4)
    assert torch.equal(promised.kt, exact.kt)
    off = (promised.q.to(F64) - exact.q.to(F64)).norm() / exact.q.to(F64).norm()
    assert off < 0.02


@pytest.mark.parametrize("options", [{"ratio": 0}, {"ratio": 1, "index": True}, {"ratio": 2, "fold": False}])
def test_a_row_does_not_depend_on_the_others(bench: Bench, options: dict[str, Any]) -> None:
    b = bench(rows=9, **options)
    rows = torch.tensor([6, 1, 3])
    whole, part = run(b), run(b, b.case.select(rows))
    for name in ("res_out", "post_out", "comb_out", "pre_out", "q", "lin", "normed_out", "qr_out", "kt"):
        left, right = getattr(part, name), getattr(whole, name)
        assert left is right is None or torch.equal(left, right[rows]), name


def test_a_padded_row_leaves_no_trace(bench: Bench) -> None:
    b = bench(rows=12)
    out, sizes = run(b), b.sizes
    pad = ~b.case.live
    assert int(pad.sum()) == 1
    assert bool((out.kt[pad] == -1).all())
    assert not out.klen.reshape(2, -1)[:, pad].any()
    assert bool(torch.isfinite(out.q.to(F32)).all())
    changed = torch.nonzero(out.swa != b.case.swa).flatten()
    spans = [front.record_address(b.case, sizes, r) for r in torch.nonzero(b.case.live).flatten().tolist()]
    inside = torch.zeros(len(out.swa), dtype=torch.bool)
    for at, scale_at in spans:
        inside[at : at + sizes.record_data_bytes] = True
        inside[scale_at : scale_at + sizes.record_scale_bytes] = True
    assert bool(inside[changed].all())


def test_flavours_are_one_computation(bench: Bench) -> None:
    ocp, fnuz = bench(fp8="ocp"), bench(fp8="fnuz")
    a, b = run(ocp), run(fnuz)
    assert torch.equal(a.q, b.q) and torch.equal(a.res_out, b.res_out)
    zero = a.x8.codes == 1  # an all-zero group has code 1 in both
    assert torch.equal(a.x8.codes + (~zero).to(torch.int32), b.x8.codes)
    assert torch.equal(a.x8.values(), b.x8.values())
    at, scale_at = front.record_address(ocp.case, ocp.sizes, 0)
    groups = ocp.sizes.nope // ocp.sizes.record_group
    assert torch.equal(a.swa[scale_at : scale_at + groups] + 1, b.swa[scale_at : scale_at + groups])
    assert a.swa[scale_at + groups] == b.swa[scale_at + groups] == 0
    tail = slice(at + ocp.sizes.nope, at + ocp.sizes.record_data_bytes)
    assert torch.equal(a.swa[tail], b.swa[tail])


def naive_keys(case: K1Case, sizes: K1Sizes, row: int, k: int) -> int:
    """Entry k of a row's key table, word for word from the format's definition."""
    if int(case.slot[row]) < 0:
        return -1
    ntopk = min((int(case.pos[row]) + 1) // case.ratio, sizes.topk) if case.ratio else 0
    if k < ntopk:
        local = int(case.topk[row, k])
        if local < 0:
            return -1
        block = int(case.comp_bt[int(case.t2r[row]), local // case.comp_block])
        return (block * case.comp_block + local % case.comp_block) | -(1 << 31)
    if k < ntopk + int(case.swa_lens[row]):
        return int(case.swa_idx[row, k - ntopk])
    return -1


@pytest.mark.parametrize(("ratio", "window"), [(0, 128), (0, 192), (1, 128), (2, 128)])
def test_key_table_word_for_word(bench: Bench, ratio: int, window: int) -> None:
    b = bench(rows=9, ratio=ratio, window=window)
    kt, klen = front.key_table(b.case, b.sizes)
    want = [[naive_keys(b.case, b.sizes, r, k) for k in range(b.sizes.keys)] for r in range(9)]
    assert kt.tolist() == want
    lengths, tops = klen.reshape(2, -1).tolist()
    for row in range(9):
        live = int(b.case.slot[row]) >= 0
        top = min((int(b.case.pos[row]) + 1) // ratio, 512) if ratio and live else 0
        assert tops[row] == top
        assert lengths[row] == (top + int(b.case.swa_lens[row]) if live else 0)


def test_index_builds_store_norms_and_no_keys(bench: Bench) -> None:
    out = run(bench(index=True))
    assert out.kt is None and out.klen is None
    assert out.normed_out.shape == (12, 1024) and out.qr_out.shape == (12, 384)
    assert set(out.tensors()) == {
        "res_out", "post_out", "comb_out", "pre_out", "q", "swa", "normed_out", "qr_out",
    }  # fmt: skip


def test_ranks_of_a_split_are_slices_of_the_whole(small: ModelSpec) -> None:
    whole = random_weights(small, 1)
    case = make_case(small, rows=4, tp=1, ratio=1)
    order = SumOrder()
    q = k1_outputs(case, whole, K1Sizes.of(small, 1), order).q
    rows, blocks = K1Sizes.of(small, 2).q_rows, K1Sizes.of(small, 2).q_rows // 32
    for rank in range(2):
        part = replace(
            whole,
            wqb=whole.wqb[rank * rows : (rank + 1) * rows],
            wqb_s=whole.wqb_s[rank * blocks : (rank + 1) * blocks],
        )
        got = k1_outputs(replace(case, tp=2, rank=rank), part, K1Sizes.of(small, 2), order).q
        assert torch.equal(got, q[:, rank * 4 : (rank + 1) * 4])


def test_dequantised_weights_are_exact() -> None:
    data = torch.arange(256, dtype=torch.uint8).repeat(4, 1)[:, :128].reshape(4, 128)
    codes = torch.tensor([[109, 121, 115, 127]], dtype=torch.uint8)
    got = dequantise(data[:1].repeat(32, 1), codes, 32)
    scale = torch.tensor([2.0 ** (c - 127) for c in (109, 121, 115, 127)], dtype=F64).repeat_interleave(32)
    want = data[0].view(torch.float8_e4m3fn).to(F64) * scale
    assert torch.equal(torch.nan_to_num(got[0]), torch.nan_to_num(want))
    size = magnitudes(data[:1].repeat(32, 1), codes, 32)[0].to(F64)
    assert bool((size >= want.abs())[~torch.isnan(want)].all())
    assert size[0] == 0 and size[1] == 2.0 ** (-6 + 109 - 127)


@pytest.mark.parametrize(("tp", "gemv", "fp8"), [(4, "fp8_mfma_fma", "fnuz"), (2, "scaled_mfma", "ocp")])
def test_the_real_sizes(model: ModelSpec, tp: int, gemv: str, fp8: str) -> None:
    case = make_case(model, rows=48, tp=tp, ratio=2, fp8=fp8)
    weights, sizes = random_weights(model, tp), K1Sizes.of(model, tp)
    out = k1_outputs(case, weights, sizes, SumOrder(gemv=gemv))
    assert out.q.shape == (48, 64 // tp, 512) and out.pmix.shape == (160, 48, 25)
    assert bool(torch.isfinite(out.q.to(F32)).all())
