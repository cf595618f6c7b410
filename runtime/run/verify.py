"""What `flymono verify` does: kernels on a device, against the reference's budgets and the emulator's bits.

Invariants
 - What is judged is the reference's budget. Bits may differ from the emulator's where hardware sums in
   another order inside a matrix instruction: they are told, and are no failure.
 - A case that ends with an error is a line of the report, and the next case runs; the report is written
   whatever happened.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flymono import __version__
from flymono.reference.verdict import Verdict
from flymono.runtime.files import check_writable, write_atomically
from flymono.runtime.run.command import Options, run
from flymono.runtime.run.devices import device_of
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.html_figures import share
from flymono.runtime.run.layer_command import run_layers
from flymono.runtime.run.layer_options import LayerOptions, check_options
from flymono.runtime.run.result import Ran, RunResult
from flymono.specs import Specs, UserError
from flymono.specs.findings import check_all

FILES = ("report.json", "report.txt")
Results = Callable[[str], list[RunResult]]
"""Of a case on a device."""
Runs = Callable[[LayerOptions, Specs], Iterator[Ran]]


@dataclass(frozen=True)
class Wanted:
    """What is verified where; `tp` of None is the arch's first."""

    arch: str
    tp: int | None
    rows: tuple[int, ...]
    layers: tuple[int, ...]
    device: str = "hip"
    against: bool = True  # the emulator's bits too, which takes minutes a case


@dataclass(frozen=True)
class Launch:
    """One launch of a case; `bits`: output -> whether the emulator has the same; empty if it did not run."""

    build: str
    code: str
    ok: bool
    bits: dict[str, bool]
    outputs: tuple[Verdict, ...]


@dataclass(frozen=True)
class Done:
    """A case: its launches, or the error that ended it."""

    name: str
    launches: tuple[Launch, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether every output of every launch is right."""
        return not self.error and bool(self.launches) and all(one.ok for one in self.launches)


def cases(wanted: Wanted, specs: Specs) -> Iterator[tuple[str, Results]]:
    """K1 alone, whole layers, and both mixtures of the FFN launch, at every row count."""
    for rows in wanted.rows:
        alone = Options(wanted.arch, wanted.tp, rows)
        yield f"K1, {rows} rows", partial(_k1, alone, specs)
        step = LayerOptions(wanted.arch, wanted.tp, rows)
        for layer in wanted.layers:
            yield (
                f"layer {layer}, {rows} rows",
                partial(_ranks, run_layers, replace(step, layer=layer), specs),
            )
        for draft, name in ((False, "FFN launch"), (True, "FFN launch of the draft")):
            yield f"{name}, {rows} rows", partial(_ranks, run_ffn, replace(step, draft=draft), specs)


def _k1(options: Options, specs: Specs, device: str) -> list[RunResult]:
    return [run(replace(options, device=device), specs)]


def _ranks(runs: Runs, options: LayerOptions, specs: Specs, device: str) -> list[RunResult]:
    return [r for ran in runs(replace(options, device=device), specs) for r in ran.results]


def check(wanted: Wanted, specs: Specs, into: Path) -> str:
    """The device's name; UserError (exit code 2) where it is not there, or the report cannot be written."""
    steps = [LayerOptions(wanted.arch, wanted.tp, rows, device=wanted.device) for rows in wanted.rows]
    layers = [replace(step, layer=layer) for step in steps for layer in wanted.layers]
    check_all(
        *(partial(check_writable, into / name) for name in FILES),
        *(partial(check_options, one, specs, "layer") for one in layers),
        *(partial(check_options, one, specs, "ffn") for one in steps),
    )
    try:
        return device_of(steps[0], specs, steps[0].tp_of(specs)).name
    except UserError as error:
        raise UserError(str(error), fix=error.fix) from error


def verify(wanted: Wanted, specs: Specs, said: Callable[[Done], None] = lambda done: None) -> list[Done]:
    """Run every case on the device, and on the emulator if wanted; `said` is called as they end."""
    done = list[Done]()
    for name, results in cases(wanted, specs):
        try:
            found = results(wanted.device)
            other = results("emulator") if wanted.against and wanted.device != "emulator" else []
            one = Done(name, tuple(_launch(r, other[n] if other else None) for n, r in enumerate(found)))
        except UserError as error:
            one = Done(name, error=error.render())
        done.append(one)
        said(one)
    return done


def _launch(result: RunResult, other: RunResult | None) -> Launch:
    bits = {} if other is None else {n: other.digests.get(n) == d for n, d in result.digests.items()}
    return Launch(result.build, result.code, result.ok, bits, result.verdicts)


def report(wanted: Wanted, device: str, done: Sequence[Done]) -> dict[str, Any]:
    """Everything that a report says."""
    return {
        "flymono": __version__, "ok": all(one.ok for one in done), "device": device,
        "wanted": asdict(wanted), "machine": machine(),
        "cases": [{"ok": one.ok, **asdict(one)} for one in done],
    }  # fmt: skip


def machine() -> dict[str, str]:
    """Versions of what took part."""
    found = {"python": sys.version.split()[0], "system": platform.platform()}
    for name in ("torch", "flydsl", "rocm-bindings-hip", "vllm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "-"
    driver = Path("/sys/module/amdgpu/version")
    return found | {"amdgpu": driver.read_text().strip() if driver.is_file() else "-"}


def lines_of(one: Done) -> list[str]:
    """A case in words: a line a launch, and one for each wrong output."""
    if one.error:
        return [f"{one.name}: ended with an error", *(f"    {line}" for line in one.error.splitlines())]
    found = []
    for launch in one.launches:
        equal = sum(launch.bits.values())
        bits = f", emulator's bits in {equal} of {len(launch.bits)} outputs" if launch.bits else ""
        worst = max((share(o) for o in launch.outputs if o.budget), default=0.0)
        verdict = "right" if launch.ok else "WRONG"
        found.append(f"{one.name}: {launch.build} {verdict}, {worst:.2f} of a budget{bits}")
        found += [
            f"    {o.stage} {o.output}: {o.worst:.3g} {o.unit}, budget {o.budget:.3g}, at {o.where}"
            for o in launch.outputs
            if not o.ok
        ]
    return found


def write(into: Path, found: dict[str, Any], done: Sequence[Done]) -> None:
    """report.json and report.txt."""
    head = [f"flymono {found['flymono']} on {found['device']}: {'right' if found['ok'] else 'WRONG'}"]
    head += [", ".join(f"{name} {value}" for name, value in found["machine"].items()), ""]
    text = "\n".join([*head, *(line for one in done for line in lines_of(one))]) + "\n"
    write_atomically(into / FILES[0], (json.dumps(found, indent=1) + "\n").encode())
    write_atomically(into / FILES[1], text.encode())
