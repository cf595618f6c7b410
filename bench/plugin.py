"""What registering the plugin costs a process, beside vLLM's own plugins of the same entry-point group.

Run it in the environment of `make vllm-test` (elsewhere it shows ours alone). Each figure is the median of
fresh interpreters that have imported what every vLLM process has before its plugins.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys

RUNS = 5
OURS = "from flymono.runtime.vllm.plugin import register; register()"
THEIRS = (
    "from importlib.metadata import entry_points\n"
    "for p in entry_points(group='vllm.general_plugins'):\n"
    "    if p.name != 'flymono': p.load()"
)
SCRIPT = """
import os, re, json, logging, importlib.metadata, importlib.util, time
start = time.perf_counter()
{}
print((time.perf_counter() - start) * 1e3)
"""


def milliseconds(code: str) -> float:
    """The median over fresh interpreters."""
    command = [sys.executable, "-c", SCRIPT.format(code)]
    found = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
        for _ in range(RUNS)
    ]
    return statistics.median(found)


def main() -> None:
    print(f"flymono registers in {milliseconds(OURS):.1f} ms (the aim is at most 50)")
    if importlib.util.find_spec("vllm") is not None:
        print(f"vLLM's own plugins load in {milliseconds(THEIRS):.1f} ms")


if __name__ == "__main__":
    main()
