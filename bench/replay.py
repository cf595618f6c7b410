"""Replay launches of a layer and hold every bit: `python bench/replay.py --arch gfx950 --tp 2 --times 300`.

One group of ranks runs the same step again and again, its epoch advancing, both halves of the peer buffers in
turn. `--mix` puts other launches between: the FFN launch, and the same layer at another width on a scratch of
its own. Whatever runs in between, each launch must end with the bits of its first run. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from flymono.gen import api
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.run.ffn_command import given, prepare_ffn, selected
from flymono.runtime.run.group import Group, Kernel
from flymono.runtime.run.layer import Layer, refuse_faults, run_layer
from flymono.runtime.run.layer_command import built, prepare_layer
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.results import digest
from flymono.specs import load


@dataclass(frozen=True)
class Track:
    """Launches that are made together, with the group that they run on."""

    name: str
    group: Group
    kernels: tuple[Kernel, ...]

    def bits(self, device: EmulatorDevice) -> tuple[str, ...]:
        """Launch once; digests of every output of every rank."""
        done = self.group.launch(device, self.kernels)
        refuse_faults(self.group, self.kernels[-1].plan)
        found = []
        for kernel, ranks in zip(self.kernels, done, strict=True):
            for rank in ranks:
                found += [digest(v) for v in rank.outputs(kernel.plan).values()]
        return tuple(found)


def layer_track(layer: Layer, group: Group, device: EmulatorDevice) -> Track:
    """K1 and K2 of a layer that was run and found right, bound to the same buffers again."""
    done = run_layer(layer, device, group)
    if not done.ok:
        raise SystemExit(f"layer {layer.case.layer} at {layer.k1.key.rows} rows is wrong before any replay")
    kernels = []
    for step in done.steps:
        used = [a.name for a in step.kernel.plan.abi.arguments if a.used]
        given = tuple({name: d.bound.values[name] for name in used} for d in step.done)
        kernels.append(replace(step.kernel, given=given))
    return Track(f"layer {layer.case.layer}, {layer.k1.key.rows} rows", group, tuple(kernels))


def ffn_track(options: LayerOptions, group: Group) -> Track:
    """The FFN launch of the options on the target's scratch."""
    specs = load()
    ready = prepare_ffn(options, specs)
    kernel = Kernel(ready.plan, api.build(ready.plan.key, specs), given(ready, selected(ready)))
    return Track(f"FFN launch, {ready.plan.key.rows} rows", group, (kernel,))


def tracks_of(options: LayerOptions, mix: bool, device: EmulatorDevice) -> list[Track]:
    """What is replayed, in the order of one round."""
    layer = built(prepare_layer(options, load()))
    group = Group.of(layer.plan.plans, layer.tp, seed=options.seed)
    tracks = [layer_track(layer, group, device)]
    if mix:
        narrow = replace(options, rows=1)
        other = built(prepare_layer(narrow, load()))
        narrowed = Group.of(other.plan.plans, layer.tp, seed=1)
        own = replace(group, layout=narrowed.layout, scratch=narrowed.scratch)
        tracks += [ffn_track(options, group), layer_track(other, own, device)]
    return tracks


def replay(tracks: list[Track], device: EmulatorDevice, times: int, say: Callable[[str], None]) -> list[int]:
    """Rounds (from 1) in which some bit differed from the first round's."""
    first, off = [t.bits(device) for t in tracks], []
    for n in range(2, times + 1):
        device.options["seed"] = n  # another order of workgroups and ranks each time
        same = [t.bits(device) == bits for t, bits in zip(tracks, first, strict=True)]
        off += [] if all(same) else [n]
        if n % 10 == 0:
            say(f"{n} of {times} rounds, {len(off)} differ")
    return off


def main() -> int:
    """Parse the arguments, replay, print a line of JSON; 1 if any bit changed."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--arch", required=True)
    p.add_argument("--tp", type=int)
    p.add_argument("--rows", type=int, default=6)
    p.add_argument("--layer", type=int, default=3)
    p.add_argument("--times", type=int, default=300)
    p.add_argument("--order", default="random")
    p.add_argument(
        "--no-check", action="store_true", help="without the hazard checks, which do not change bits"
    )
    p.add_argument("--mix", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    options = LayerOptions(arch=a.arch, tp=a.tp, rows=a.rows, layer=a.layer)
    device = EmulatorDevice(load().arch[a.arch], {"seed": 0, "order": a.order, "check": not a.no_check})
    tracks = tracks_of(options, a.mix, device)
    off = replay(tracks, device, a.times, lambda text: print(text, file=sys.stderr, flush=True))
    launches = sum(len(t.kernels) for t in tracks) * a.times
    result = {
        "arch": a.arch, "ranks": len(tracks[0].group.epoch), "tracks": [t.name for t in tracks],
        "rounds": a.times, "launches a rank": launches, "order": a.order,
        "last epoch": tracks[0].group.at(0), "rounds that differ": off,
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if off else 0


if __name__ == "__main__":
    raise SystemExit(main())
