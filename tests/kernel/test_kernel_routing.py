"""Selection and route table: our rules for ties and NaN, and the table against the picks it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import small
import torch

from flymono.reference import router
from flymono.reference.experts import Picks
from flymono.reference.layer_sizes import LayerSizes

TAG = 8
MODEL = next(iter(small.SPECS.model.values()))
PARTS, COPIES = 4, 8


def _case(rows: int, draft: bool, width: int = 6) -> dict[str, int]:
    experts, picks = (128, 3) if draft else (384, 6)
    return {
        "rows": rows,
        "experts": experts,
        "picks": picks,
        "width": width,
        "route": rows * experts * PARTS * 8,
    }


def _pairs(words: np.ndarray) -> np.ndarray:
    return np.stack([words.astype(np.int32), np.full(words.shape, TAG, np.int32)], -1).reshape(-1)


def _epoch() -> np.ndarray:
    epoch = np.zeros(832, np.int32)
    epoch[0] = (TAG - 2) // 2
    return epoch


def _route(
    run: small.Runner, arch: str, parts: np.ndarray, bias: np.ndarray, draft: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Ids [copies, S, K] and weights of logit parts [S, E, 4]."""
    rows, case = len(parts), _case(len(parts), draft)
    k = case["picks"]
    scratch = np.zeros(case["route"] // 4 + COPIES * rows * 2 * k * 2, np.int32)
    scratch[: case["route"] // 4] = _pairs(parts.astype(np.float32).view(np.int32))
    buffers = {"bias": bias.astype(np.float32), "scratch": scratch, "epoch": _epoch()}
    run("route.py.j2", arch, buffers, grid=rows, case=case)
    out = scratch[case["route"] // 4 :].reshape(COPIES, rows, 2 * k, 2)
    assert (out[..., 1] == TAG).all()
    return out[..., :k, 0], np.ascontiguousarray(out[..., k:, 0]).view(np.float32)


def _wanted(parts: np.ndarray, bias: np.ndarray, draft: bool) -> router.Routing:
    sizes = LayerSizes.of(MODEL, 4, draft)
    logits = router.logits(torch.from_numpy(parts.astype(np.float32)).permute(2, 0, 1))
    return router.select(logits, torch.from_numpy(bias.astype(np.float32)), sizes, exact=False)


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("arch", small.ARCHS)
def test_selection_of_drawn_scores(run: small.Runner, arch: str, draft: bool) -> None:
    generator = np.random.default_rng(3)
    experts = 128 if draft else 384
    parts = generator.standard_normal((6, experts, PARTS)) * np.array([0.5, 2, 8, 20, 0.01, 5])[:, None, None]
    bias = generator.standard_normal(experts) * 0.3
    ids, weights = _route(run, arch, parts, bias, draft)
    want = _wanted(parts, bias, draft)
    assert (ids == ids[:1]).all() and np.array_equal(ids[0], want.ids.numpy())
    assert np.allclose(weights[0], want.weights.numpy(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("arch", small.ARCHS)
def test_ties_go_to_the_lowest_expert_and_nan_never_wins(run: small.Runner, arch: str, draft: bool) -> None:
    experts, k = (128, 3) if draft else (384, 6)
    parts = np.zeros((6, experts, PARTS))
    parts[1] = np.arange(experts)[:, None] % 4  # four levels of many equal experts
    parts[2, :, 0] = np.nan
    parts[2, [5, 69, 70]] = [[1.0] * 4, [1.0] * 4, [2.0] * 4]  # three numbers among NaN
    parts[3] = np.nan
    parts[4] = -40.0  # scores of 0
    parts[5, 64:66] = 3.0
    ids, weights = _route(run, arch, parts, np.zeros(experts), draft)
    assert ids[0, 0].tolist() == list(range(k))
    assert ids[0, 1].tolist() == [3 + 4 * i for i in range(k)]
    assert ids[0, 2].tolist() == [70, 5, 69, 0, 1, 2][:k]
    assert ids[0, 3].tolist() == list(range(k)) and (weights[0, 3] == 0).all()
    assert ids[0, 4].tolist() == list(range(k)) and (weights[0, 4] == 0).all()
    assert ids[0, 5].tolist() == [64, 65, 0, 1, 2, 3][:k]
    assert np.array_equal(ids[0], _wanted(parts, np.zeros(experts), draft).ids.numpy())


def _table(run: small.Runner, arch: str, ids: np.ndarray, experts: int, width: int) -> dict[str, np.ndarray]:
    rows, k = ids.shape
    case = _case(rows, experts == 128, width) | {"route": 0}
    weights = (np.arange(ids.size, dtype=np.float32) + 0.5).reshape(ids.shape)
    route = np.concatenate([ids.astype(np.int32), weights.view(np.int32)], 1)
    out = np.zeros(13312 // 4, np.int32)
    buffers = {"out": out, "scratch": np.tile(_pairs(route), COPIES), "epoch": _epoch()}
    run("table.py.j2", arch, buffers, case=case)
    n = rows * k
    return {
        "weights": out[:n].view(np.float32), "slots": out[512:1152].view(np.uint16).reshape(-1, 4),
        "units": out[1152:1792].view(np.uint16).reshape(-1, 4), "order": out[1792 : 1792 + n].view(np.uint16),
        "counts": out[(13056 + 32) // 4 :][:2],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "experts", "width", "hot"),
    [
        (6, 384, 6, 384),
        (1, 384, 6, 384),
        (7, 384, 6, 8),
        (42, 384, 16, 384),
        (48, 384, 16, 9),
        (42, 128, 6, 4),
    ],
)
def test_table(run: small.Runner, rows: int, experts: int, width: int, hot: int) -> None:
    """Slots, units and positions of drawn picks; `hot`: how many experts they fall on."""
    generator = np.random.default_rng(rows)
    k, pool = (3 if experts == 128 else 6), generator.permutation(experts)[:hot]
    ids = np.stack([generator.permutation(pool)[:k] for _ in range(rows)])
    got = _table(run, "gfx942", ids, experts, width)
    picks = Picks(torch.from_numpy(ids.astype(np.int32)))
    order = got["order"].reshape(-1, 2)
    assert np.array_equal(order[:, 0], picks.order.numpy()) and np.array_equal(
        order[:, 1], picks.token.numpy()
    )
    assert np.array_equal(got["weights"], np.arange(rows * k, dtype=np.float32) + 0.5)
    slots = [(e, own.stop - own.start, own.start) for e, own in picks.slots()]
    units = [
        (e, min(width, count - at), first + at) for e, count, first in slots for at in range(0, count, width)
    ]
    cut = rows > width
    assert got["counts"].tolist() == [len(slots), len(units) if cut else len(slots)]
    assert [tuple(s[:3]) for s in got["slots"][: len(slots)].tolist()] == slots
    firsts = np.cumsum([0, *(-(-count // width) if cut else 1 for _, count, _ in slots)])[:-1]
    assert got["slots"][: len(slots), 3].tolist() == firsts.tolist()
    if cut:
        assert [tuple(u[:3]) for u in got["units"][: len(units)].tolist()] == units
