"""Scenarios: each runs in an interpreter of its own, since vLLM asks once a process which GPU it has."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_GB = 16
Started = subprocess.Popen[str]
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed: make vllm-test makes its environment",
)


def run(
    name: str, arch: str, *arguments: object, seconds: float = 1400, env: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run scenarios/NAME.py on a fake GPU of `arch`; its answer, with the lines of its log as `log`."""
    return ended(start(name, arch, *arguments, env=env), seconds)


def start(name: str, arch: str, *arguments: object, env: dict[str, str] | None = None) -> Started:
    """The process of a scenario, at work."""
    command = [sys.executable, str(HERE / "scenarios" / f"{name}.py"), arch, *map(str, arguments)]
    own = environment(arch) | (env or {})
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: Started, seconds: float = 1400) -> dict[str, Any]:
    """Its answer when it has ended, as `run` gives it."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    lines = (out + "\n" + err).splitlines()
    found = [line[7:] for line in lines if line.startswith("ANSWER ")]
    assert process.returncode == 0 and found, "\n".join(lines[-60:])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    assert peak < LIMIT_GB, f"a scenario took {peak:.1f} GB"
    answer: dict[str, Any] = json.loads(found[-1])
    answer["log"] = [line for line in lines if "flymono: " in line]
    return answer


def environment(arch: str) -> dict[str, str]:
    """The environment of a scenario."""
    from flymono.runtime.plan.layers.host import needs_of
    from flymono.specs import load

    known = load().arch
    aiter = arch in known and needs_of(known[arch]).moe_backend is not None
    places = [HERE, HERE / "fakes", *([HERE / "fakes_aiter"] if aiter else []), ROOT / "src"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "FLYMONO"))}
    env |= {k: v for k, v in os.environ.items() if k in ("FLYMONO_CACHE", "FLYMONO_BUNDLE")}
    return env | {
        "PYTHONPATH": os.pathsep.join(map(str, places)), "FLYMONO_TEST_ARCH": arch,
        "HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1",
        "VLLM_ROCM_USE_AITER": str(int(aiter)), "VLLM_ROCM_USE_AITER_MOE": str(int(aiter)),
        "VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(Path(tempfile.gettempdir()) / "flymono-vllm-test"),
    }  # fmt: skip
