"""Routing of a step: every reason, pure, once for all layers; and the agreement of ranks on a plan."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path as File

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flymono.runtime.plan import Deployed
from flymono.runtime.plan.layers import (
    CATALOGUE,
    Counts,
    Host,
    HostLayer,
    ModelPlan,
    Path,
    ServeCode,
    StepFacts,
    Vote,
    decide,
    differences,
    model_plan,
    reason,
    vote_of,
)
from flymono.runtime.plan.layers import step as routing
from flymono.runtime.plan.layers.codes import listed
from flymono.specs import load

from .serving import HOSTS, check_never_mixed, codes, hosts, layers

SPECS = load()
MODEL = SPECS.model["deepseek_v41_flash"]
WHOLE = model_plan(SPECS, HOSTS["gfx942-tp4"])
MIXED = model_plan(SPECS, HOSTS["gfx950-tp2-fp8"])

ALONE = {
    "rows-out-of-range": {"rows": 43},
    "piecewise": {"graph": "piecewise"},
    "no-context": {"context": False},
    "no-metadata": {"metadata": "none"},
    "split-step": {"metadata": "split"},
    "layer-metadata": {"missing": (3, 9)},
    "prefills": {"prefills": 1},
    "no-decodes": {"decodes": 0},
    "decode-tokens": {"decode_tokens": 7},
    "stage-entry": {"entry_dims": 3},
    "compressed-metadata": {"uncompressed": (2,)},
    "window-width": {"window": 192},
    "window-metadata": {"lists": False},
}
"""Code -> what makes it, in a step of 6 rows."""
OF_WHOLE_LAYERS = {"stage-entry", "compressed-metadata", "window-width", "window-metadata"}

facts = st.builds(
    StepFacts,
    rows=st.integers(-1, 60),
    draft=st.booleans(),
    graph=st.sampled_from(["none", "full", "piecewise"]),
    context=st.booleans(),
    metadata=st.sampled_from(["none", "split", "layers", "layers"]),
    prefills=st.integers(0, 2),
    decodes=st.sampled_from([None, 0, 3]),
    decode_tokens=st.sampled_from([None, 0, 6, 70]),
    missing=st.sampled_from([(), (0,), (5, 41), (99,)]),
    uncompressed=st.sampled_from([(), (0,), (20,), (41,)]),
    window=st.sampled_from([None, 128, 192, 256]),
    lists=st.booleans(),
    entry_dims=st.sampled_from([None, 2, 3]),
)


def test_an_ordinary_step_runs_as_planned() -> None:
    for rows in (1, 6, 42):
        for draft in (False, True):
            decision = decide(WHOLE, StepFacts(rows, draft=draft))
            assert decision.path(Path.WHOLE) is Path.WHOLE and not decision.reasons and decision.line == ""
    full = StepFacts(6, graph="full", entry_dims=2, window=128, decodes=1, decode_tokens=5)
    assert decide(WHOLE, full).whole


@pytest.mark.parametrize("code", ALONE)
def test_each_condition_alone(code: str) -> None:
    decision = decide(WHOLE, replace(StepFacts(6), **ALONE[code]))  # type: ignore[arg-type]
    assert codes(decision.reasons) == {code} and not decision.whole
    assert f"on vLLM's path: {code}: " in decision.line


def test_all_conditions_at_once() -> None:
    every = {name: value for one in ALONE.values() for name, value in one.items()}
    every |= {"metadata": "layers", "context": True}
    known = codes(decide(WHOLE, replace(StepFacts(6), **every)).reasons)  # type: ignore[arg-type]
    hidden = {"no-context", "no-metadata", "split-step", "decode-tokens"}  # 7 tokens fit 43 rows
    assert known == set(ALONE) - hidden


@pytest.mark.parametrize("code", ALONE)
def test_what_only_whole_layers_need_leaves_ffn_launches_alone(code: str) -> None:
    changed = {"rows": 49} if code == "rows-out-of-range" else ALONE[code]
    decision = decide(MIXED, replace(StepFacts(6), **changed))  # type: ignore[arg-type]
    wrong = code == "compressed-metadata"  # layer 2 is an FFN launch there, which reads no cache
    assert decision.ffn == (code in OF_WHOLE_LAYERS)
    assert decision.whole == wrong
    assert ("FFN launches run" in decision.line) == (code in OF_WHOLE_LAYERS and not wrong)


@settings(max_examples=150)
@given(facts)
def test_a_decision_is_pure_and_has_a_reason(said: StepFacts) -> None:
    for plan in (WHOLE, MIXED):
        first = decide(plan, said)
        assert first == decide(plan, replace(said))  # all ranks: equal facts, equal answer
        others = replace(said, missing=said.missing[::-1], uncompressed=said.uncompressed[::-1])
        assert first == decide(plan, others)
        kernels = any(o.path is Path.WHOLE for o in plan.layers if o.draft is said.draft)
        assert first.whole == (kernels and not first.reasons)
        assert all(r.code.klass == "STEP" for r in first.reasons)


@settings(max_examples=60)
@given(hosts, layers, facts)
def test_no_step_mixes_either(host: Host, said: list[HostLayer], step: StepFacts) -> None:
    plan = model_plan(SPECS, host, said)
    decision = decide(plan, replace(step, draft=False))
    check_never_mixed(MODEL, {o.layer: decision.path(o.path) for o in plan.layers})


def test_a_layer_that_decides_for_itself_would_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: conditions of one layer's metadata looked at by that layer alone."""
    paths = {}
    for one in WHOLE.layers:
        alone = replace(WHOLE, layers=(one,))
        paths[one.layer] = decide(alone, StepFacts(6, missing=(5,), draft=one.draft)).path(one.path)
    with pytest.raises(AssertionError, match="source 2 is whole"):
        check_never_mixed(MODEL, paths)
    together = decide(WHOLE, StepFacts(6, missing=(5,)))
    check_never_mixed(MODEL, {o.layer: together.path(o.path) for o in WHOLE.layers})


def test_the_draft_decides_for_itself() -> None:
    missing = StepFacts(5, missing=(40,))
    assert decide(WHOLE, missing).whole
    assert codes(decide(WHOLE, replace(missing, draft=True)).reasons) == {"layer-metadata"}
    assert decide(WHOLE, StepFacts(5, draft=True, window=192, entry_dims=3)).whole
    assert codes(decide(WHOLE, StepFacts(5, draft=True, window=128, entry_dims=2)).reasons) == {
        "window-width",
        "stage-entry",
    }


def test_a_width_that_is_not_built() -> None:
    plan = replace(WHOLE, widths=(1, 6, 12), draft_widths=(5,))
    assert decide(plan, StepFacts(6)).whole
    (found,) = decide(plan, StepFacts(7)).reasons
    assert str(found.code) == "width-not-built" and found.text.endswith("up to 42 rows: 1, 6, 12)")
    assert "--widths 7 -o DIR, or capture 12 rows" in found.fix
    assert codes(decide(plan, StepFacts(6, draft=True)).reasons) == {"width-not-built"}
    assert codes(decide(plan, StepFacts(43)).reasons) == {"rows-out-of-range"}


def test_without_a_kernel_layer_the_step_still_says_everything() -> None:
    plan = model_plan(SPECS, Host("gfx942", 2))
    decision = decide(plan, StepFacts(43, graph="piecewise", prefills=2))
    assert codes(decision.reasons) == {"no-kernel-layers", "rows-out-of-range", "piecewise", "prefills"}
    assert not decision.whole and not decision.ffn


def test_counts_by_reason() -> None:
    counts = Counts()
    for said in (StepFacts(6), StepFacts(43, prefills=1), StepFacts(43), StepFacts(6)):
        counts.add(decide(WHOLE, said))
    assert counts.data() == {"steps": 4, "taken": 2, "reasons": {"prefills": 1, "rows-out-of-range": 2}}


def test_a_forgotten_condition_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_metadata_reasons", lambda facts, layers: [])
    with pytest.raises(AssertionError):
        test_each_condition_alone("prefills")


# ---- agreement of ranks


def test_ranks_that_say_the_same_agree() -> None:
    assert differences([vote_of(WHOLE)] * 4) == ()


def other_plan() -> ModelPlan:
    return model_plan(SPECS, HOSTS["gfx942-tp4"], [HostLayer(9, Deployed(kv_dtype="mxfp8"))])


def test_a_rank_that_planned_otherwise_is_named_with_the_layer() -> None:
    (found,) = differences([vote_of(WHOLE), vote_of(WHOLE), vote_of(other_plan()), vote_of(WHOLE)])
    assert found.code is ServeCode.RANKS_DIFFER
    assert found.text == "ranks 2 planned otherwise than rank 0: layer 8 is 'f' on rank 2 and 'w' there"


def test_a_silent_rank_is_named() -> None:
    found = differences([vote_of(WHOLE), None, vote_of(other_plan()), None], seconds=60)
    assert [str(r.code) for r in found] == ["rank-silent", "ranks-differ"]
    assert found[0].text == "ranks 1, 3 did not answer within 60 s"
    assert [str(r.code) for r in differences([None, None])] == ["rank-silent"]


def test_a_fault_of_one_rank_speaks_against_all() -> None:
    fault = reason(ServeCode.PEER_MEMORY, rank=1, what="open the handle of rank 0")
    (found,) = differences([vote_of(WHOLE), vote_of(WHOLE, [fault])])
    assert "peer-memory" in found.text


@given(
    st.lists(st.sampled_from([vote_of(WHOLE), vote_of(MIXED), Vote("x", "ww"), None]), min_size=1, max_size=8)
)
def test_ranks_agree_exactly_if_all_votes_are_equal(votes: list[Vote | None]) -> None:
    assert (differences(votes) == ()) == (None not in votes and len(set(votes)) == 1)


# ---- the catalogue


def test_every_code_is_in_the_catalogue() -> None:
    assert set(CATALOGUE) == set(ServeCode)
    for code, entry in CATALOGUE.items():
        assert entry.text and entry.fix and entry.host_line, code
        assert code.about == entry.text and (code.phase, code.klass) == (entry.phase, entry.klass)
        assert (entry.phase == "step") == (entry.klass == "STEP"), code


def fields(template: str) -> set[str]:
    """Names that a template fills in."""
    return set(re.findall(r"(?<!{){([a-z_]+)}", template))


def test_calls_fill_all_that_their_templates_name(repo: File) -> None:
    """Where `reason(ServeCode.X, ...)` names its values one by one."""
    seen = 0
    for path in (repo / "runtime").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            first, names = call.args[:1], {k.arg for k in call.keywords}
            named = isinstance(call.func, ast.Name) and call.func.id == "reason" and None not in names
            code = first[0].attr if named and first and isinstance(first[0], ast.Attribute) else ""
            if code in ServeCode.__members__:
                entry = CATALOGUE[ServeCode[code]]
                assert names >= fields(entry.text) | fields(entry.fix), f"{path}:{call.lineno}"
                seen += 1
    assert seen > 10


@pytest.mark.parametrize(
    ("numbers", "text"), [((), "none"), ((3,), "3"), ((1, 2), "1, 2"), ((5, 1, 2, 3, 5), "1-3, 5")]
)
def test_numbers_in_words(numbers: tuple[int, ...], text: str) -> None:
    assert listed(numbers) == text
