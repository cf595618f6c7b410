"""The plan of a whole model: paths, reasons, the rule of index sources, and what ranks compare."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flymono.runtime.plan import Class, Deployed, Unsupported, plan_of
from flymono.runtime.plan.layers import (
    FEATURES,
    Host,
    HostLayer,
    Path,
    ServeCode,
    host_line,
    model_plan,
    reason,
)
from flymono.runtime.plan.layers import model as planning
from flymono.runtime.plan.layers.builds import Builds
from flymono.runtime.plan.layers.summary import check_starts, startup_lines
from flymono.specs import Specs, load
from flymono.specs.findings import UserError

from .plan_specs import arch_with, spec_set
from .serving import (
    HOSTS,
    PUBLISHED,
    check_never_mixed,
    check_reasons,
    codes,
    consumers_of,
    hosts,
    layers,
    paths_of,
)

SPECS = load()
MODEL = SPECS.model["deepseek_v41_flash"]
INDEX = (2, 8, 14, 20, 24, 28, 32, 36)


@settings(max_examples=60)
@given(hosts, layers)
def test_no_consumer_of_a_whole_source_runs_the_hosts_attention(host: Host, said: list[HostLayer]) -> None:
    plan = model_plan(SPECS, host, said)
    check_never_mixed(MODEL, paths_of(plan))
    check_reasons(plan)


@settings(max_examples=40)
@given(st.sampled_from(list(HOSTS.values())), layers, st.randoms(use_true_random=False))
def test_order_does_not_matter(host: Host, said: list[HostLayer], shuffled: random.Random) -> None:
    other = list(said)
    shuffled.shuffle(other)
    first, again = model_plan(SPECS, host, said), model_plan(SPECS, host, iter(other))
    assert first == again
    assert first.digest == again.digest


@settings(max_examples=40)
@given(hosts, layers)
def test_a_lenient_server_starts_on_the_same_paths(host: Host, said: list[HostLayer]) -> None:
    strict, lenient = (model_plan(SPECS, host, said, strict=flag) for flag in (True, False))
    assert paths_of(strict) == paths_of(lenient)
    assert lenient.starts
    assert strict.starts == (
        not any(r.code.klass is Class.STOP for one in strict.layers for r in one.reasons)
    )
    if not strict.starts:
        with pytest.raises(Unsupported) as refused:
            check_starts(strict)
        assert {r.code.klass for r in refused.value.reasons} == {Class.STOP}
    check_starts(lenient)


@settings(max_examples=40)
@given(hosts, layers)
def test_a_path_is_what_the_classes_of_its_reasons_say(host: Host, said: list[HostLayer]) -> None:
    for one in model_plan(SPECS, host, said).layers:
        classes = {r.code.klass for r in one.reasons}
        if classes & {Class.STOP, Class.STOCK}:
            assert one.path is Path.STOCK
        else:
            assert one.path is (Path.FFN if classes else Path.WHOLE)
        assert Class.STEP not in classes


@pytest.mark.parametrize("name", HOSTS)
def test_the_published_plans(name: str) -> None:
    """Backbone and draft layers whole on both archs, but for gfx950's index layers under the FP8 indexer."""
    plan = model_plan(SPECS, HOSTS[name])
    on_ffn = INDEX if name.startswith("gfx950") and name.endswith("fp8") else ()
    assert {n for n, path in paths_of(plan).items() if path is Path.FFN} == set(on_ffn)
    assert plan.count(Path.STOCK) == 0 and [one.layer for one in plan.layers] == list(range(43))
    for n in on_ffn:
        assert [str(r.code) for r in plan[n].reasons] == ["indexer"]
        assert '--attention-config \'{"indexer_kv_dtype":"mxfp4"}\'' in plan[n].reasons[0].fix


@pytest.mark.parametrize("name", HOSTS)
def test_what_is_planned_has_builds_at_every_width(name: str) -> None:
    """Planning asks for reasons alone; here the launches of each planned layer are planned in full."""
    plan, host = model_plan(SPECS, HOSTS[name]), HOSTS[name]
    builds = Builds(SPECS, MODEL, SPECS.arch[host.arch], host.tp)
    for rows in (1, plan.limit):
        keys = {k for o in plan.layers for k in builds.launches(o.layer, o.path, o.draft, rows)}
        assert keys and all(plan_of(SPECS, key).key == key for key in keys)


def test_one_consumer_off_takes_its_source_off_and_nothing_else() -> None:
    off = HostLayer(5, Deployed(kv_dtype="mxfp8"))
    plan = model_plan(SPECS, HOSTS["gfx942-tp4"], [off])
    assert {n for n, p in paths_of(plan).items() if p is not Path.WHOLE} == {2, 5}
    assert (plan[2].path, codes(plan[2].reasons)) == (Path.FFN, {"consumer-on-host"})
    assert "layers 5 " in plan[2].reasons[0].text
    assert plan[3].source == plan[5].source == plan[2].source == 2


def test_a_source_off_leaves_its_consumers_whole() -> None:
    """They read the selection that the host's indexer wrote, not the pack of its attention."""
    plan = model_plan(SPECS, HOSTS["gfx942-tp4"], [HostLayer(8, indexer="mxfp4")])
    assert {n for n, p in paths_of(plan).items() if p is not Path.WHOLE} == {8}


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        (HostLayer(3, Deployed(PUBLISHED)), Path.WHOLE),
        (HostLayer(3, Deployed(replace(PUBLISHED, experts=256))), Path.STOCK),
        (HostLayer(3, Deployed(replace(PUBLISHED, shared_experts=0))), Path.STOCK),
        (HostLayer(3, Deployed(kv_dtype="mxfp8")), Path.FFN),
        (HostLayer(3, Deployed(ratio=4)), Path.FFN),
        (HostLayer(3, compressor=True), Path.FFN),
        (HostLayer(3, sequence_parallel=True), Path.STOCK),
        (HostLayer(41, Deployed(window=256)), Path.FFN),
        (HostLayer(43), Path.STOCK),
        (HostLayer(-1), Path.STOCK),
        (HostLayer(3, made=Path.FFN), Path.STOCK),
        (HostLayer(3, made=Path.STOCK), Path.STOCK),
        (HostLayer(3, made=Path.WHOLE), Path.WHOLE),
    ],
)
def test_a_layer_that_differs(layer: HostLayer, path: Path) -> None:
    assert model_plan(SPECS, HOSTS["gfx942-tp4"], [layer])[layer.number].path is path


def test_the_fused_seam_is_needed_where_there_is_one() -> None:
    paths = {a: model_plan(SPECS, Host(a, 4, fused_seam=False))[3].path for a in ("gfx942", "gfx950")}
    assert paths == {"gfx942": Path.WHOLE, "gfx950": Path.STOCK}


def test_the_moe_backend_matters_where_kernels_read_its_tensors() -> None:
    said = {a: model_plan(SPECS, Host(a, 4, moe_backend="TRITON")).stops for a in ("gfx942", "gfx950")}
    assert (codes(said["gfx942"]), codes(said["gfx950"])) == (set(), {"moe-backend"})


@pytest.mark.parametrize(
    ("host", "code"),
    [
        (Host("gfx942", 2), "tp-not-offered"),
        (Host("gfx950", 3), "tp-not-offered"),
        (Host("gfx90a", 4), "arch-unknown"),
        (Host("gfx942", 4, compute_units=38), "compute-units"),
        (Host("gfx942", 4, expert_parallel=True), "expert-parallel"),
        (Host("gfx942", 4, dp=2), "data-parallel"),
        (Host("gfx942", 4, pp=2), "pipeline-parallel"),
        (Host("gfx942", 4, cp=2), "context-parallel"),
        (Host("gfx942", 4, bundle_arch="gfx950"), "bundle-arch"),
    ],
)
def test_a_deployment_that_stops_the_server(host: Host, code: str) -> None:
    plan = model_plan(SPECS, host)
    assert code in codes(plan.stops) and not plan.starts
    assert set(paths_of(plan).values()) == {Path.STOCK}
    assert all(code in codes(one.reasons) for one in plan.layers)
    assert all(line.warning for line in startup_lines(plan))


def test_all_reasons_and_not_the_first() -> None:
    host = Host("gfx950", 3, compute_units=32, expert_parallel=True, dp=2, kv_dtype="auto", fused_seam=False)
    assert codes(model_plan(SPECS, host)[8].reasons) >= {
        "tp-not-offered", "compute-units", "expert-parallel", "data-parallel", "kv-dtype-unknown",
        "fused-seam", "indexer",
    }  # fmt: skip


def test_a_model_without_a_spec_is_refused() -> None:
    with pytest.raises(Unsupported) as refused:
        model_plan(SPECS, Host("gfx942", 4, model="other"))
    assert "model-unknown" in codes(refused.value.reasons)


def test_faults_found_elsewhere_put_every_layer_on_the_hosts_path() -> None:
    faults = [
        reason(ServeCode.PEER_MEMORY, rank=1, what="open the handle of rank 0"),
        reason(ServeCode.BUNDLE_MISSING, arch="gfx942", tp=4, where="none is installed"),
    ]
    first, again = (model_plan(SPECS, HOSTS["gfx942-tp4"], faults=said) for said in (faults, faults[::-1]))
    assert first == again and first.count(Path.STOCK) == 43
    assert (codes(first.reasons), codes(first.stops)) == (
        {"peer-memory", "bundle-missing"},
        {"bundle-missing"},
    )
    off = reason(ServeCode.SWITCHED_OFF, value="stock")
    assert model_plan(SPECS, HOSTS["gfx942-tp4"], faults=[off]).starts
    assert codes(model_plan(SPECS, Host("gfx90a", 4), faults=[off])[0].reasons) == {
        "arch-unknown",
        "switched-off",
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [({"lds": 30000}, "lds-too-small"), ({"mfma": ()}, "mfma-missing"), ({"units": 228}, "grid-too-small")],
)
def test_an_arch_that_admits_no_build_stops_every_layer(change: dict[str, Any], code: str) -> None:
    broken = spec_set(MODEL, arch_with(SPECS.arch["gfx950"], **change))
    plan = model_plan(broken, Host("gfx950", 2))
    assert code in codes(plan.stops)
    assert plan.count(Path.STOCK) == 43 and all(code in codes(one.reasons) for one in plan.layers)


# ---- features, drafts, widths


def test_every_feature_that_vllm_has_is_judged() -> None:
    """The list of what nobody mentions: each works, or has a class and a code."""
    assert set(FEATURES) >= {
        "pipeline-parallel", "sequence-parallel", "dbo", "lora", "context-parallel", "sleep-mode",
        "kv-transfer", "kv-offload", "weight-cache", "prefix-cache-replay", "batch-sharded-sampling",
        "dynamic-speculation", "draft-count",
    }  # fmt: skip
    for name, feature in FEATURES.items():
        plan = model_plan(SPECS, Host("gfx942", 4, features=(name,)))
        if feature.code is None:
            assert plan.count(Path.WHOLE) == 43, name
        else:
            assert codes(plan.reasons) == {feature.code}, name
            assert plan.count(Path.STOCK) == 43 and plan.starts == (feature.code.klass is Class.STOCK)


def test_an_unknown_feature_is_the_hosts_mistake() -> None:
    with pytest.raises(UserError, match="lorra"):
        model_plan(SPECS, Host("gfx942", 4, features=("lorra",)))


def test_a_size_says_more_than_its_feature() -> None:
    plan = model_plan(SPECS, Host("gfx942", 4, dp=3, features=("data-parallel",)))
    assert [r.text for r in plan.reasons if r.code is ServeCode.DATA_PARALLEL] == [
        "data-parallel size 3: ranks of a layer would be in steps of different widths"
    ]


@pytest.mark.parametrize(
    ("drafts", "path"), [(1, Path.WHOLE), (5, Path.WHOLE), (64, Path.WHOLE), (65, Path.FFN)]
)
def test_draft_counts(drafts: int, path: Path) -> None:
    plan = model_plan(SPECS, Host("gfx942", 4, drafts=drafts))
    assert {plan[n].path for n in (40, 41, 42)} == {path}
    assert {plan[n].path for n in range(40)} == {Path.WHOLE}


def test_without_drafts_there_are_no_draft_layers() -> None:
    assert [one.layer for one in model_plan(SPECS, Host("gfx942", 4, drafts=0)).layers] == list(range(40))


def bundle(host: Host, target: tuple[int, ...], draft: tuple[int, ...]) -> frozenset[str]:
    """Ids of the builds of these widths."""
    builds, plan = Builds(SPECS, MODEL, SPECS.arch[host.arch], host.tp), model_plan(SPECS, host)
    return frozenset(
        key.id
        for one in plan.layers
        for rows in (draft if one.draft else target)
        for key in builds.launches(one.layer, one.path, one.draft, rows)
    )


def test_a_width_is_there_if_every_launch_of_every_layer_is() -> None:
    host = HOSTS["gfx942-tp4"]
    held = bundle(host, (1, 6, 42), (5, 10))
    plan = model_plan(SPECS, replace(host, builds=held))
    assert (plan.widths, plan.draft_widths) == ((1, 6, 42), (5, 10))
    without = held - {"dsv41_keylist-gfx942-tp4-s6-r1"}
    assert model_plan(SPECS, replace(host, builds=without)).widths == (1, 42)


def test_captured_widths_that_the_bundle_lacks_are_named_with_the_command() -> None:
    host = HOSTS["gfx942-tp4"]
    held = bundle(host, (6, 12), (5,))
    plan = model_plan(SPECS, replace(host, builds=held, capture=(6, 12, 18, 24, 48)))
    assert codes(plan.notes) == {"width-not-built"}
    target, draft = plan.notes
    assert target.text.startswith("18,24 rows") and draft.text.startswith("draft steps of 10,15,20 rows")
    assert target.fix.startswith("flymono bundle --arch gfx942 --tp 4 --widths 18,24 -o DIR")
    assert [line.warning for line in startup_lines(plan)[-2:]] == [True, True]
    assert not model_plan(SPECS, replace(host, builds=held, capture=(6, 48))).notes


# ---- what ranks compare


def test_the_digest_tells_plans_apart() -> None:
    base = HOSTS["gfx950-tp2-mxfp4"]
    plans = [
        model_plan(SPECS, base),
        model_plan(SPECS, HOSTS["gfx950-tp4-mxfp4"]),
        model_plan(SPECS, HOSTS["gfx950-tp2-fp8"]),
        model_plan(SPECS, base, [HostLayer(40, Deployed(kv_dtype="mxfp8"))]),
        model_plan(SPECS, base, strict=False),
        model_plan(SPECS, replace(base, builds=frozenset())),
        model_plan(SPECS, replace(base, drafts=0)),
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert model_plan(SPECS, base).digest == plans[0].digest


def test_what_one_rank_alone_measures_is_no_part_of_it() -> None:
    """Compute units differ between products of an arch; a rank's own count must not break the agreement."""
    digests = {model_plan(SPECS, Host("gfx942", 4, compute_units=n)).digest for n in (None, 256, 304)}
    assert len(digests) == 1


# ---- planted faults: the properties above must see them


def test_a_plan_that_mixes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_never_mixed", lambda found, said: tuple(found))
    plan = model_plan(SPECS, HOSTS["gfx942-tp4"], [HostLayer(5, Deployed(kv_dtype="mxfp8"))])
    with pytest.raises(AssertionError, match="source 2 is whole"):
        check_never_mixed(MODEL, paths_of(plan))


def test_a_plan_that_settles_sources_first_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of the host that was made for another path, met after its source was left whole."""
    as_made = planning._as_made
    monkeypatch.setattr(planning, "_as_made", lambda one, made: one)
    plan = model_plan(SPECS, HOSTS["gfx942-tp4"], [HostLayer(9, made=Path.FFN)])
    late = {one.layer: as_made(one, Path.FFN if one.layer == 9 else None).path for one in plan.layers}
    with pytest.raises(AssertionError, match="source 8 is whole"):
        check_never_mixed(MODEL, late)


def test_a_layer_without_a_reason_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "layer_reasons", lambda *_: [])
    monkeypatch.setattr(planning, "path_of", lambda codes: Path.FFN)
    with pytest.raises(AssertionError):
        check_reasons(model_plan(SPECS, HOSTS["gfx942-tp4"]))


def test_the_topology_of_the_test_is_the_published_one() -> None:
    sources = consumers_of(MODEL)
    assert tuple(sources) == INDEX
    assert sources[2] == [3, 4, 5, 6, 7] and sources[36] == [37, 38, 39]


# ---- the catalogue


def test_a_code_stands_for_the_line_that_it_replaces() -> None:
    """Of runtime.md 2.6: an error at startup, layers off, layers on the FFN launch, a skipped step."""
    lines = {str(code): host_line(code) for code in ServeCode}
    assert lines["expert-parallel"] == "ValueError: --monokernel {why}."
    assert lines["fused-seam"] == "mono decode off for some layers: {why}"
    assert lines["indexer"] == "the FFN launch for layers with {why}"
    assert lines["piecewise"] == "skipped a step: {why}"
    assert lines["lora"] == "-"


@pytest.mark.parametrize("name", HOSTS)
def test_the_plans_are_the_golden_ones(name: str, golden: Callable[[str, str], None], specs: Specs) -> None:
    from flymono.cli.plan_model import as_json

    plan = model_plan(specs, HOSTS[name])
    lines = "".join(f"{line.text}\n" for line in startup_lines(plan))
    table = ""
    for one in plan.layers:
        why = ",".join(sorted(codes(one.reasons))) or "-"
        table += f"{one.layer:>2} {one.path:<5} {why:<8} {one.kind.why if one.kind else ''}\n"
    assert as_json(plan).endswith("}\n")
    golden(f"plan/model-{name}.txt", lines + table)
