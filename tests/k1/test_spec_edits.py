"""An edited spec flows through plan, kernel and result without another edit, or is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from running import build_id, launch, options, wrong

from flymono.gen import api
from flymono.runtime.plan import BuildKey, Unsupported, plan_k1
from flymono.runtime.run.command import prepare
from flymono.specs import UserError, default_root, load


def edited(tmp_path: Path, arch: str, old: str, new: str) -> Path:
    """A copy of the shipped specs with one line of one arch changed."""
    root = tmp_path / "specs"
    for kind in ("arch", "model", "build", "numerics"):
        shutil.copytree(default_root() / kind, root / kind)
    file = root / "arch" / f"{arch}.yaml"
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    return root


def test_a_smaller_lds_gives_a_narrower_pass_and_right_results(tmp_path: Path) -> None:
    """12 rows a pass: one pass, then two of which the last is ragged."""
    specs = load(edited(tmp_path, "gfx950", "lds_bytes: 163840", "lds_bytes: 98304"))
    for rows, passes in ((6, 1), (13, 2)):
        ready = prepare(options(build_id("gfx950", 2, rows)), specs)
        assert (ready.plan.passes.width, ready.plan.passes.count) == (12, passes)
        assert wrong(launch(ready).verdicts()) == []


def test_an_lds_too_small_is_refused_with_the_stage(tmp_path: Path) -> None:
    specs = load(edited(tmp_path, "gfx942", "lds_bytes: 65536", "lds_bytes: 30000"))
    with pytest.raises(Unsupported) as refused:
        plan_k1(specs, BuildKey.parse(build_id("gfx942", 4, 6)))
    assert "seam" in refused.value.render()


def test_an_lds_that_the_compiler_does_not_admit_is_refused_by_the_probe(tmp_path: Path) -> None:
    specs = load(edited(tmp_path, "gfx942", "lds_bytes: 65536", "lds_bytes: 163840"))
    with pytest.raises(UserError) as refused:
        api.build(BuildKey.parse(build_id("gfx942", 4, 6)), specs)
    assert "163840" in refused.value.render() and "65536" in refused.value.render()


@pytest.mark.parametrize("rows", [6, 48])
def test_a_larger_grid_admits_more_rows_and_is_right(tmp_path: Path, rows: int) -> None:
    """304 workgroups: the row limit grows from 42 to 48; wq_b stays on 256 of them."""
    old = "simds_per_cu: 4"
    specs = load(edited(tmp_path, "gfx942", old, f"{old}\n  workgroups: 304"))
    ready = prepare(options(build_id("gfx942", 4, rows)), specs)
    assert (ready.plan.grid, ready.plan.row_limit.rows, ready.plan.stage("wq_b").span) == (304, 48, 256)
    assert wrong(launch(ready).verdicts()) == []
