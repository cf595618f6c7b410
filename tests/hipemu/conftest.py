"""One stand-in runtime for all tests of this folder: two gfx950 devices in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("layer", "devices", "runner"))]
torch.set_num_threads(1)

pytest.importorskip("rocm.bindings.hip", reason="the extra [hip] is not installed")


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Path:
    """Where stand-in libraries are built."""
    assert request.config.cache is not None
    return request.config.cache.mkdir("hipemu")


@pytest.fixture(scope="session")
def runtime(built: Path) -> Iterator[Path]:
    """The stand-in, named by the environment; this process keeps it from its first call on."""
    from library import environment

    from flymono.runtime.devices.hip_library import mapped_libraries

    assert all("hipemu" in str(p) for p in mapped_libraries()), "this process has a real HIP runtime"
    os.environ |= environment(built, devices=2)
    yield Path(os.environ["ROCM_PATH"])


@pytest.fixture
def gpus(runtime: Path) -> Iterator[tuple[object, object]]:
    """Both devices."""
    from benches import specs
    from torch_on_cpu import CpuTorch

    from flymono.runtime.devices.hip import HipGpu

    pair = HipGpu(specs(), 0, CpuTorch(0)), HipGpu(specs(), 1, CpuTorch(1))
    yield pair
    for gpu in pair:
        gpu.close()
