"""`flymono run layer` and `run ffn` as a user meets them: refusals, folders, shards, reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from flymono.cli import main as cli
from flymono.runtime.run import folder
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.layer_command import run_layers
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.weights import make_layer_file
from flymono.specs import UserError, load

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def flymono(capsys: pytest.CaptureFixture[str]) -> Call:
    """`flymono("run", ...)`: (exit code, stdout, stderr)."""

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(args)
        code = ended.value.code
        return (code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


REFUSED = {
    "layer --arch gfx942 --tp 2 --rows 43 --layer 400 --order foo --mfma bar --seed -1 --weights /no/where": (
        "TP2 on gfx942", "43 rows", "there is no layer 400", "order is foo", "mfma is bar", "seed is -1",
    ),
    "layer --arch gfx950 --rows 49 --weights /no/where --contexts 1,2000000": (
        "49 rows", "/no/where", "contexts [2000000]",
    ),
    "layer --arch gfx950 --contexts 1,0,x": ("contexts '0', 'x'",),
    "layer --arch gfx950 --rows 4 --padded 4": ("4 padded rows of 4",),
    "layer --arch gfx950 --layer 7 --chain 3": ("layer 8 reads another compressed cache", "layer 9"),
    "layer --arch gfx950 --layer 0 --chain 2": ("its engram has settled",),
    "layer --arch gfx950 --layer 39 --chain 2": ("first draft layer",),
    "layer --arch gfx950 --chain 0 --steps 0": ("a chain of 0 layers in 0 steps",),
    "layer --arch gfx950 --rows 49 --contexts x,1 --chain 0": ("49 rows", "contexts 'x'", "a chain of 0"),
    "layer --arch gfx950 --layer -5 --chain 9 --rows 49": ("there is no layer -5", "49 rows"),
    "ffn --arch gfx950 --draft --layer 3 --rows 49": ("layer 3 is no draft layer", "49 rows"),
    "layer --arch nothing": ("there is no arch spec 'nothing'",),
    "layer --arch gfx950 --inputs /no/where": ("/no/where/inputs.safetensors does not exist",),
    "ffn --arch gfx942 --tp 3 --rows 0": ("TP3 on gfx942", "0 rows"),
    "ffn --arch gfx950 --layer 43 --trans x": ("there is no layer 43", "trans is x"),
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_all_that_is_wrong_is_said_at_once(flymono: Call, line: str) -> None:
    code, out, err = flymono("run", *line.split())
    assert code == 2
    assert not out
    for part in REFUSED[line]:
        assert err.count(part) >= 1, part
    assert "Traceback" not in err


def test_a_shard_without_the_step_s_experts_is_refused_by_name(flymono: Call, tmp_path: Path) -> None:
    model = next(iter(load().model.values()))
    shard = make_layer_file(tmp_path / "shard.safetensors", model, 0, experts=[5])
    code, _, err = flymono(
        "run", "layer", "--arch", "gfx950", "--rows", "1", "--layer", "0", "--weights", str(shard)
    )
    assert code == 2
    assert "layers.0.ffn.experts." in err and "the step selects this expert" in err and str(shard) in err
    assert "experts.5." not in err


# ------------------------------------------------------------------ folders


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A layer that ran with --save, and the digests of its last launch."""
    path = tmp_path_factory.mktemp("layer")
    (ran,) = run_layers(LayerOptions(arch="gfx950", tp=2, rows=1, layer=0, save=path))
    assert ran.ok
    return path, dict(ran.results[-1].digests)


def test_a_saved_layer_runs_again_with_the_same_bits(saved: tuple[Path, dict[str, str]]) -> None:
    path, digests = saved
    (ran,) = run_layers(LayerOptions(arch="gfx950", inputs=path))
    assert ran.ok and dict(ran.results[-1].digests) == digests
    names = {p.name for p in path.iterdir()}
    assert {"inputs.safetensors", "weights.safetensors", "outputs-layer0-k1.safetensors",
            "outputs-layer0-k2.safetensors"} <= names  # fmt: skip


def altered(folder: Path, into: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """The folder's inputs with a change, its weights as they are."""
    with safe_open(folder / "inputs.safetensors", "pt") as file:
        tensors, meta = {n: file.get_tensor(n) for n in file.keys()}, file.metadata()  # noqa: SIM118
    change(tensors)
    save_file(tensors, into / "inputs.safetensors", metadata=meta)
    (into / "weights.safetensors").symlink_to(folder / "weights.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("comp_bt"), "comp_bt is missing"),
        (lambda t: t.update(topk=t["topk"].to(torch.int64)), "topk: torch.int64"),
        (lambda t: t.pop("comp"), "comp is missing"),
    ],
)
def test_a_damaged_folder_is_refused(
    saved: tuple[Path, dict[str, str]],
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], object],
    said: str,
) -> None:
    altered(saved[0], tmp_path, change)
    with pytest.raises(UserError) as caught:
        list(run_layers(LayerOptions(arch="gfx950", inputs=tmp_path)))
    assert said in str(caught.value) and caught.value.exit_code == 2


@pytest.fixture(scope="module")
def saved_ffn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """An FFN launch that ran with --save, and the digests of its outputs."""
    path = tmp_path_factory.mktemp("ffn")
    (ran,) = run_ffn(LayerOptions(arch="gfx950", tp=2, rows=1, draft=True, save=path))
    assert ran.ok
    return path, dict(ran.results[-1].digests)


@pytest.mark.slow
def test_a_saved_ffn_launch_runs_again_with_the_same_bits(
    saved_ffn: tuple[Path, dict[str, str]], flymono: Call
) -> None:
    path, digests = saved_ffn
    code, out, _ = flymono("run", "ffn", "--arch", "gfx950", "--inputs", str(path), "--seed", "5", "--json")
    (launch,) = json.loads(out)["launches"]
    assert code == 0 and launch["digests"] == digests  # another seed: of what the scratch held before
    assert {p.name for p in path.iterdir()} == {
        "inputs.safetensors", "weights.safetensors", "outputs.safetensors",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("layer --arch gfx950", "saved for the kernel ffn"),
        ("k1 --arch gfx950", "flymono run ffn"),
        ("ffn --arch gfx942 --rows 6 --draft --layer 40", "--rows, --layer, --draft beside --inputs"),
        ("ffn --arch gfx942", "was saved for gfx950"),
    ],
)
def test_what_does_not_go_with_the_folder_of_an_ffn_launch(
    saved_ffn: tuple[Path, dict[str, str]], flymono: Call, line: str, said: str
) -> None:
    code, out, err = flymono("run", *line.split(), "--inputs", str(saved_ffn[0]))
    assert code == 2 and not out and said in err and "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("part"), "part is missing"),
        (lambda t: t.update(part=t["part"][:1]), "part: [1, 1, 5120], needed is [2, 1, 5120]"),
        (lambda t: t.update(pre_in=t["pre_in"].double()), "pre_in: torch.float64"),
    ],
)
def test_a_damaged_folder_of_an_ffn_launch_is_refused(
    saved_ffn: tuple[Path, dict[str, str]], tmp_path: Path, flymono: Call,
    change: Callable[[dict[str, torch.Tensor]], object], said: str,
) -> None:  # fmt: skip
    altered(saved_ffn[0], tmp_path, change)
    code, _, err = flymono("run", "ffn", "--arch", "gfx950", "--inputs", str(tmp_path))
    assert code == 2 and said in err


@pytest.mark.slow
def test_options_beside_a_folder_that_holds_them(saved: tuple[Path, dict[str, str]]) -> None:
    for options in (
        LayerOptions(arch="gfx950", tp=4, inputs=saved[0]),
        LayerOptions(arch="gfx950", rows=1, inputs=saved[0]),
        LayerOptions(arch="gfx942", inputs=saved[0]),
    ):
        with pytest.raises(UserError):
            list(run_layers(options))
    assert folder.load(saved[0]).facts["layer"] == 0


# ------------------------------------------------------------------ memory, reports


WITH_PEAK = """
import atexit, pathlib, sys
from flymono.cli import main
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: print("VmHWM:" + status.read_text().partition("VmHWM:")[2], file=sys.stderr))
main.main(sys.argv[1:])
"""
"""The command line, then its own peak: what wait4 says of a child counts what it was forked from."""


@pytest.mark.slow
def test_four_ranks_fit_in_eight_gigabytes_and_report(tmp_path: Path) -> None:
    report = tmp_path / "layer.html"
    line = [
        "run",
        "layer",
        "--arch",
        "gfx942",
        "--tp",
        "4",
        "--rows",
        "6",
        "--layer",
        "20",
        "--json",
        "--report",
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITH_PEAK, *line, str(report)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["ok"] and [r["build"].split("-")[0] for r in result["launches"]] == [
        "dsv41_k1", "dsv41_keylist", "dsv41_k2",
    ]  # fmt: skip
    assert all(r["ranks"] == 4 for r in result["launches"])
    page = report.read_text()
    assert "dsv41_k2" in page and "http" not in page.split("<script")[0]
    assert int(done.stderr.rpartition("VmHWM:")[2].split()[0]) < 8 << 20  # KiB
