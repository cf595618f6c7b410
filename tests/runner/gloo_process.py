"""One process of a torch.distributed world: `gloo_process.py RANK SIZE DEAD FOLDER`.

Its group leaves out process 0, so ranks of the group are numbered otherwise than processes, as those of TP
groups in a larger world are. Rank DEAD of the group goes away before the last exchange; the others write down
what they got until then, and what they were told.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import torch
import torch.distributed as dist

from flymono.runtime.runner.agree import together
from flymono.runtime.runner.errors import Doing, RunnerError
from flymono.runtime.runner.ranks import GlooRanks

rank, size, dead, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
group = dist.new_group(list(range(1, size)))
if rank:
    ranks = GlooRanks(group)
    with torch.device("meta"):  # as a host does that makes its layers on a GPU
        assert ranks.all_gather((ranks.rank, "x" * 1000 * rank), 200)[0] == (0, "x" * 1000)
    said = str(together(ranks, Doing.PLANNING, lambda: ranks.rank, 200))
    if ranks.rank == dead:
        os._exit(0)
    try:
        together(ranks, Doing.OPENING, lambda: ranks.rank, 200)
    except RunnerError as error:
        (folder / f"{ranks.rank}.txt").write_text(f"{said}\n{error}")
os._exit(0)
