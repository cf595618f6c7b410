"""The benchmark's modules are plain modules of `bench/`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
torch.set_num_threads(1)  # two test processes on two cores
