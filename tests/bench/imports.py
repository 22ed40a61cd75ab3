"""What importing costs: the viewer's start-up budget."""

import subprocess
import sys
import time

from tests.bench.table import Row

ROUNDS = 7


def run() -> list[Row]:
    """Best of `ROUNDS` fresh interpreters each, the bare interpreter taken off."""
    bare = _best("pass")
    rows = []
    for module, goal in (("tui.app", 250), ("engine_daemon.client", 90)):
        ms = _best(f"import {module}") - bare
        rows.append(Row(f"import {module}", f"{ms:.0f} ms", f"≤ {goal} ms", ms <= goal))
    reference = _best("import zmq.asyncio, textual.app") - bare
    rows.append(Row("import zmq.asyncio, textual.app (reference)", f"{reference:.0f} ms"))
    return rows


def _best(code: str) -> float:
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - begin)
    return min(times) * 1000
