"""Plans, log codes and refusals on vLLM's real decoder layers and draft model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scenario import needs_vllm, run

pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.timeout(1500)]
INDEX = (2, 8, 14, 20, 24, 28, 32, 36)
DEPLOYMENTS = (("gfx942", 4, ""), ("gfx950", 2, ""), ("gfx950", 2, "mxfp4"), ("gfx950", 4, "mxfp4"))


def shown(found: dict[str, Any]) -> str:
    """What the golden keeps: a line a layer, then the lines of the log."""
    layers = {one["layer"]: one for one in found["plan"]["layers"]}
    rows = []
    for number, said in found["paths"].items():
        codes = ",".join(r["code"] for r in layers[int(number)]["reasons"]) or "-"
        host = "reduces" if said["reduces"] else "hands on its partial"
        entry = ", unfolded entry" if said["unfolded"] else ""
        rows.append(f"{number:>2} {said['path']:5} {codes:14} wq_b {said['wq_b']}, wo_b {host}{entry}")
    return "\n".join([*rows, *found["lines"], f"helpers on: {found['helpers']}", ""])


@pytest.mark.parametrize(("arch", "tp", "indexer"), DEPLOYMENTS)
def test_every_layer_takes_its_path(
    arch: str, tp: int, indexer: str, golden: Callable[[str, str], None]
) -> None:
    found = run("plans", arch, tp, indexer)
    assert "refused" not in found, found["refused"]
    own = [s for s in found["paths"].values() if s["class"] == "flymono.runtime.vllm.layer.MonoLayer"]
    assert len(own) == 43
    golden(f"vllm/plan-{arch}-tp{tp}{'-' + indexer if indexer else ''}.txt", shown(found))


def test_codes_of_a_default_server_are_logged_once_with_their_fix() -> None:
    found = run("plans", "gfx950", 2)
    lines = [line for line in found["log"] if "indexer: the indexer is fp8" in line]
    assert len(lines) == 1 and '"indexer_kv_dtype":"mxfp4"' in lines[0]
    ffn = [int(n) for n, s in found["paths"].items() if s["path"] == "ffn"]
    assert tuple(ffn) == INDEX


def test_vllms_helpers_are_switched_on_and_built(tmp_path: Any) -> None:
    """Their gate is opened by the docking class that ours replaces (runtime.md 6.0)."""
    found = run("plans", "gfx942", 4)
    assert found["helpers"] and found["asked_to_build"] == 1
    other = run("plans", "gfx950", 2)
    assert not other["helpers"] and other["asked_to_build"] == 0


@pytest.mark.parametrize(("tp", "options", "code"), [(2, "", "tp-not-offered"), (4, "ep", "expert-parallel")])
def test_a_deployment_that_cannot_run_does_not_start(tp: int, options: str, code: str) -> None:
    found = run("plans", "gfx942", tp, options)
    assert code in found["refused"] and "fix: " in found["refused"], json.dumps(found)[:400]


def test_a_lenient_server_runs_vllms_path_and_says_so() -> None:
    found = run("plans", "gfx942", 2, env={"FLYMONO_STRICT": "0"})
    assert {s["path"] for s in found["paths"].values()} == {"stock"}
    assert all(s["reduces"] for s in found["paths"].values())


@pytest.mark.parametrize(
    ("env", "path", "home"),
    [
        ({"FLYMONO": "0"}, "?", "vllm."),
        ({"FLYMONO": "stock"}, "stock", None),
        ({"VLLM_PLUGINS": "another"}, "?", "vllm."),
    ],
)
def test_the_plugin_can_be_switched_off(env: dict[str, str], path: str, home: str | None) -> None:
    """With FLYMONO=0 the layers have vLLM's own docking object (or none, where it needs what is not here)."""
    found = run("plans", "gfx942", 4, env=env)
    if home is not None:
        assert "FlyDSL and AITER" in found.get("refused", "") or {s["class"] for s in found["paths"].values()}
        assert not any((s["class"] or "").startswith("flymono") for s in found.get("paths", {}).values())
    else:
        assert {s["path"] for s in found["paths"].values()} == {path}
