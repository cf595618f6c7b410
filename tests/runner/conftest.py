"""Tests of runners share `serving` (a plain module of this folder)."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # two test processes on two cores
