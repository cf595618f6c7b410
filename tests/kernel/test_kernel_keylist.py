"""The key-list launch: the reference's bits, what K1 and K2 write, nothing read that need not be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import attention
import pytest
import small
import test_kernel_k1 as in_k1
import torch

from flymono.emulator.codeobject import CodeObject
from flymono.emulator.device import EmulationError, Emulator, LaunchResult
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.render import TEMPLATES
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.reference.case import K1Case, make_case
from flymono.reference.front import key_table
from flymono.reference.k2 import K2Case
from flymono.reference.layer_case import make_k2_case
from flymono.reference.layer_sizes import LayerSizes
from flymono.runtime.plan import BuildKey, KernelPlan, plan_layer, plan_of
from flymono.runtime.run.bind import unwritten
from flymono.specs import Specs, load

MODEL = next(iter(small.SPECS.model.values()))
CONTEXTS = (1, 100, 130, 513, 4000, 70000)
STALE = 0x7FFFFF00
WORDS = ("pos", "slot", "swa_lens")  # loaded for every row, and dropped for a padded one
LISTS = ("swa_idx", "topk", "t2r")

# build, contexts of its requests (in turn, six rows each; () draws some), padded rows if not the default
RIGHT: list[tuple[str, tuple[int, ...], int | None]] = [
    ("gfx942-tp4-s1-r1", (1,), None),
    ("gfx942-tp4-s1-r2", (1,), None),
    ("gfx942-tp4-s1-r2", (70000,), None),
    ("gfx942-tp4-s6-r2", (4000,), 0),
    ("gfx942-tp4-s6-r1", (100, 513), 1),
    ("gfx942-tp4-s7-r2", (), None),
    ("gfx942-tp4-s24-r1", (130, 513, 4000), 23),
    ("gfx942-tp4-s42-r1", CONTEXTS, None),
    ("gfx942-tp4-s42-r2", CONTEXTS, 3),
    ("gfx950-tp2-s48-r2", CONTEXTS, 5),
    ("gfx950-tp4-s17-r1", (), None),
]


def _case(key: BuildKey, contexts: tuple[int, ...] = (), padded: int | None = None) -> K1Case:
    """A step whose lists hold, past what a row may see and in padded rows, what no reader survives."""
    case = make_case(
        MODEL, rows=key.rows, tp=key.tp, ratio=key.ratio, index=True, contexts=contexts, padded=padded
    )
    live, topk, slots = case.live, case.topk.clone(), case.swa_idx.clone()
    visible = ((case.pos + 1) // case.ratio).clamp_max(topk.shape[1]) * live
    topk[torch.arange(topk.shape[1]) >= visible[:, None]] = STALE
    slots[torch.arange(slots.shape[1]) >= (case.swa_lens * live)[:, None]] = STALE
    pos, lens = torch.where(live, case.pos, STALE), torch.where(live, case.swa_lens, STALE)
    return replace(case, topk=topk, swa_idx=slots, pos=pos, swa_lens=lens, t2r=_stale(case.t2r, live))


def _stale(values: torch.Tensor, live: torch.Tensor) -> torch.Tensor:
    return torch.where(live, values, STALE).to(values.dtype)


def _made(
    build_id: str, store: Store, compiler: Compiler, specs: Specs = small.SPECS, templates: Path = TEMPLATES
) -> tuple[KernelPlan, Artefact]:
    key = BuildKey.parse(f"dsv41_keylist-{build_id}")
    settings = Settings(store, templates=templates)
    return plan_of(specs, key), build(unit_of(specs, key), settings, compiler)[0]


def _launch(
    plan: KernelPlan, made: Artefact, case: K1Case | K2Case | None = None, *, grid: int = 0,
    given: Mapping[str, Any] | None = None, rows: int | None = None, **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, LaunchResult]:  # fmt: skip
    """(kt, klen, counters). `given` replaces arguments; of the lists, only `rows` rows may be touched."""
    device, values = Emulator(plan.key.arch, **options), []
    outputs = {a.name: unwritten(a.shape, torch.int32) for a in plan.abi.arguments if a.written}
    for a in plan.abi.arguments:
        value = (given or {}).get(a.name, outputs.get(a.name, getattr(case, a.name, None)))
        if isinstance(value, torch.Tensor):
            size = value.nbytes
            if rows is not None and a.name in LISTS:
                size = size // len(value) * rows
            value = device.register(a.name, (value.data_ptr(), size), writable=a.written)
        values.append(value)
    result = device.launch(CodeObject(made.hsaco), made.kernel, grid or plan.grid, values)
    return outputs["kt"], outputs["klen"], result


def _wanted(case: K1Case) -> tuple[torch.Tensor, torch.Tensor]:
    kt, klen = key_table(case, LayerSizes.of(MODEL, case.tp))
    return kt.flatten(), klen


@pytest.mark.parametrize(("build_id", "contexts", "padded"), RIGHT)
def test_bits(
    build_id: str, contexts: tuple[int, ...], padded: int | None, store: Store, compiler: Compiler
) -> None:
    plan, made = _made(build_id, store, compiler)
    case = _case(plan.key, contexts, padded)

    kt, klen, result = _launch(plan, made, case)

    want_kt, want_klen = _wanted(case)
    assert torch.equal(kt, want_kt) and torch.equal(klen, want_klen)
    for name in ("kt", "klen"):
        assert result.traffic[name].store.bytes == plan.cost[name].requested_write
    for name in ("comp_bt", *LISTS, *WORDS):
        assert result.traffic[name].load.bytes <= plan.cost[name].requested_read, name


def test_the_cases_hold_what_they_claim() -> None:
    """-1 inside a list, full and short lists, full and short windows, drafts, padding, several requests."""
    case = _case(BuildKey("keylist", "gfx942", 4, 42), CONTEXTS, 3)
    kt, klen = _wanted(case)
    total, chosen = klen.reshape(2, -1)
    inside = torch.arange(640) < chosen[:, None]
    assert ((kt.reshape(42, -1) == -1) & inside).any()
    assert {0, 512} < set(chosen.tolist()) and {1, 128} < set((total - chosen).tolist())
    assert case.t2r[case.live].unique(return_counts=True)[1].tolist() == [6] * 6 + [3]
    assert not klen.reshape(2, -1)[:, ~case.live].any() and (~case.live).sum() == 3


@pytest.mark.parametrize("build_id", ["gfx942-tp4-s42-r2", "gfx950-tp2-s7-r1"])
def test_lists_of_padded_rows_need_not_be_there(build_id: str, store: Store, compiler: Compiler) -> None:
    """The lists end behind the last live row; what padded rows hold besides names nothing that exists."""
    plan, made = _made(build_id, store, compiler)
    case = _case(plan.key, padded=3)

    kt, klen, _ = _launch(plan, made, case, rows=plan.key.rows - 3)

    want_kt, want_klen = _wanted(case)
    assert torch.equal(kt, want_kt) and torch.equal(klen, want_klen)
    with pytest.raises(EmulationError, match="out-of-bounds"):
        _launch(plan, made, case, rows=plan.key.rows - 4)


def test_a_padded_row_between_live_ones(store: Store, compiler: Compiler) -> None:
    plan, made = _made("gfx942-tp4-s7-r2", store, compiler)
    case = _case(plan.key, (4000,), 0)
    gone = torch.arange(7) == 2
    case = replace(
        case, slot=torch.where(gone, -1, case.slot), t2r=_stale(case.t2r, ~gone), pos=_stale(case.pos, ~gone),
        swa_lens=_stale(case.swa_lens, ~gone), topk=_stale(case.topk, ~gone[:, None]),
    )  # fmt: skip

    kt, klen, _ = _launch(plan, made, case)

    want_kt, want_klen = _wanted(case)
    assert torch.equal(kt, want_kt) and torch.equal(klen, want_klen)


@pytest.mark.parametrize("arch", small.ARCHS)
def test_any_order_of_workgroups_gives_the_same_bytes(arch: str, store: Store, compiler: Compiler) -> None:
    plan, made = _made(f"{arch}-tp4-s12-r2", store, compiler)
    case = _case(plan.key)
    want = torch.cat(_wanted(case))
    for options in in_k1.ORDERS:
        kt, klen, _ = _launch(plan, made, case, **options)
        assert torch.equal(torch.cat((kt, klen)), want), options


@pytest.mark.parametrize("ratio", [1, 2])
def test_k1_writes_the_same(ratio: int, store: Store, compiler: Compiler) -> None:
    """K1 of a layer without an index makes its table itself; given the same lists, it is this one."""
    plan, made = _made(f"gfx942-tp4-s6-r{ratio}", store, compiler)
    k1, code = in_k1._artefact(replace(plan.key, kind="k1"), store, compiler)
    bound = in_k1._bound(k1)
    in_k1._launch(k1, code, bound)
    inputs = {a.name: bound.values[a.name] for a in plan.abi.arguments if not a.written}

    kt, klen, _ = _launch(plan, made, given=inputs)

    assert torch.equal(kt, bound.tensor("kt").flatten()) and torch.equal(klen, bound.tensor("klen"))


def test_k2_of_an_index_layer_writes_the_same(store: Store, compiler: Compiler, tmp_path: Path) -> None:
    """Where K2 makes the table, its back (without the FFN half) leaves the same words."""
    key = BuildKey.parse("dsv41_k2-gfx950-tp2-s6-r2-index")
    k2, code = attention.artefact(key, store, compiler, tmp_path)
    case = make_k2_case(MODEL, rows=6, tp=2, ratio=2, window=128, fp8=k2.strategy.fp8, keys_inside=True)
    weights = attention.random_weights(LayerSizes.of(MODEL, 2), seed=2)
    done = attention.launch(k2, code, case, weights)
    plan, made = _made("gfx950-tp2-s6-r2", store, compiler)

    kt, klen, _ = _launch(plan, made, case)

    assert torch.equal(kt, done.given["kt"].flatten()) and torch.equal(klen, done.given["klen"])


def test_an_arch_that_states_the_launch_gets_it(store: Store, compiler: Compiler) -> None:
    """Who makes the table is a line of the arch spec."""
    specs = load(None, {"gfx950.layers.index_keys": "launch"})
    keys = [p.key for p in plan_layer(specs, "gfx950", 2, 6, 2).plans]
    assert [k.kind for k in keys] == ["k1", "keylist", "k2"] and not keys[2].index
    plan, made = _made(keys[1].id.removeprefix("dsv41_keylist-"), store, compiler, specs)
    case = _case(plan.key)

    kt, klen, _ = _launch(plan, made, case)

    want_kt, want_klen = _wanted(case)
    assert torch.equal(kt, want_kt) and torch.equal(klen, want_klen)


WRONG_LAUNCHES = {
    "a row short": lambda case: {"grid": case.rows - 1},
    "stride of another table": lambda case: {"given": {"bt_stride": case.bt_stride - 1}},
    "blocks of the other ratio": lambda case: {"given": {"comp_block": case.comp_block * 2}},
    "another row's request": lambda case: {"given": {"t2r": case.t2r.roll(6)}},
    "positions from zero": lambda case: {"given": {"pos": case.pos - 1}},
    "windows of other rows": lambda case: {"given": {"swa_idx": case.swa_idx.roll(1, 0)}},
}


@pytest.mark.parametrize("wrong", WRONG_LAUNCHES)
def test_a_wrong_launch_is_seen(wrong: str, store: Store, compiler: Compiler) -> None:
    plan, made = _made("gfx942-tp4-s12-r2", store, compiler)
    case = _case(plan.key, (130, 4000), 0)

    kt, klen, _ = _launch(plan, made, case, **WRONG_LAUNCHES[wrong](case))  # type: ignore[no-untyped-call]

    want_kt, want_klen = _wanted(case)
    assert not (torch.equal(kt, want_kt) and torch.equal(klen, want_klen))


def test_a_kernel_that_takes_padded_rows_for_live_ones_is_seen(
    store: Store, compiler: Compiler, tmp_path: Path
) -> None:
    """Its rows of the lists are followed to where there is nothing."""
    for path in TEMPLATES.glob("*.j2"):
        text = path.read_text()
        if path.name == "keylist.py.j2":
            assert text.count("(c, KT, pos, slot,") == 1
            text = text.replace("(c, KT, pos, slot,", "(c, KT, pos, pos,")
        (tmp_path / path.name).write_text(text)
    plan, made = _made("gfx942-tp4-s7-r2", store, compiler, templates=tmp_path)
    case = _case(plan.key, padded=2)

    with pytest.raises(EmulationError, match="out-of-bounds"):
        _launch(plan, made, case, rows=5)


@pytest.mark.parametrize("build_id", ["gfx942-tp4-s42-r2", "gfx942-tp4-s1-r1", "gfx950-tp2-s48-r1"])
def test_figures(build_id: str, store: Store, compiler: Compiler) -> None:
    figures = _made(build_id, store, compiler)[1].resources
    assert figures.lds_bytes == figures.scratch_bytes == figures.vgpr_spills == figures.sgpr_spills == 0
    assert figures.vgprs <= 16 and figures.instructions <= 140
