"""`make vllm-test`: every test file in an interpreter of its own, memory watched; arguments go to pytest.

Two numbers end the run: seconds, and the highest memory that this process and its descendants held together.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT_GB = 16.0


def main(arguments: list[str]) -> int:
    start, failed, watch = time.monotonic(), list[str](), Watch()
    for file in sorted(HERE.glob("test_*.py")):
        command = [sys.executable, "-m", "pytest", "-m", "slow or not slow", str(file), *arguments]
        code = subprocess.run(command, cwd=HERE.parents[1], check=False).returncode
        if code not in (0, 5):  # 5: no test of this file was asked for
            failed.append(file.name)
    peak = watch.stop()
    print(f"== vllm-test: {time.monotonic() - start:.0f} s, at most {peak:.1f} GB", flush=True)
    if peak > LIMIT_GB:
        failed.append(f"memory ({peak:.1f} GB, the limit is {LIMIT_GB:.0f})")
    if failed:
        print(f"== failed: {', '.join(failed)}")
    return int(bool(failed))


class Watch:
    """The memory of all descendants of this process, looked at twice a second."""

    def __init__(self) -> None:
        self.peak, self._end = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        import psutil

        own = psutil.Process()
        while not self._end.wait(0.5):
            total = 0
            for one in (own, *own.children(recursive=True)):
                try:
                    total += one.memory_info().rss - one.memory_info().shared
                except psutil.Error:
                    continue  # it has just ended
            self.peak = max(self.peak, total / 2**30)

    def stop(self) -> float:
        self._end.set()
        self._thread.join()
        return self.peak


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
