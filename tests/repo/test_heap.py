"""Memory that is freed and taken again: pages are cleared once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flymono.runtime.heap import keep_heap

HELD = """
import torch
from flymono.runtime.heap import give_back, keep_heap

def held(): return int(open("/proc/self/statm").read().split()[1])
"""

SCRIPT = f"""{HELD}
import resource, sys
from flymono.runtime.weights.fp4_copies import lazily_zero

def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "keep":
    assert keep_heap()
torch.ones(20_000_000, dtype=torch.float64)
start = faults()
for _ in range(8):
    torch.ones(20_000_000, dtype=torch.float64)
print(faults() - start)
before = held()
large = lazily_zero((1 << 12, 1 << 20))
large[7, 5] = 1
assert int(large[7].sum()) == 1
print(held() - before)
"""

BELOW = f"""{HELD}
assert keep_heap()
free, above = torch.ones(20_000_000, dtype=torch.float64), torch.ones(20_000_000, dtype=torch.float64)
full = held()
del free
kept = held()
give_back()
print(full - kept, kept - held())
"""


def run(how: str) -> tuple[int, int]:
    """Page faults of eight large tensors, pages that four lazily mapped gigabytes took."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True, timeout=120
    )
    faults, pages = done.stdout.split()
    return int(faults), int(pages)


def test_kept_memory_is_not_cleared_again() -> None:
    if not keep_heap():
        pytest.skip("this C library has no mallopt")
    kept, given_back = run("keep"), run("give back")
    assert given_back[0] > 8 * 20_000_000 * 8 // 4096 // 520  # pages of 2 MB at most
    assert kept[0] < given_back[0] / 4  # the first of the eight still grows the heap


@pytest.mark.parametrize("how", ["keep", "give back"])
def test_what_is_mapped_lazily_stays_so(how: str) -> None:
    """The row that was read and written is 1 MB of 4 GB; other pages are those of the summation."""
    assert run(how)[1] < 16 * (1 << 20) // 4096  # and what torch loads meanwhile


def test_free_memory_below_what_is_used_is_given_back() -> None:
    if not keep_heap():
        pytest.skip("this C library has no mallopt")
    done = subprocess.run(
        [sys.executable, "-c", BELOW], capture_output=True, text=True, check=True, timeout=120
    )
    by_free, by_giving_back = map(int, done.stdout.split())
    assert by_free < 1000 and by_giving_back > 20_000_000 * 8 // 4096 * 9 // 10
