"""The worker process: `python -P -m engine_daemon.worker --socket E_SOCK --death-fd N --rank 0`.

With several ranks `--peers` are sockets to the other ranks, or of one that follows, to rank 0.
Arms its death watch before it imports anything slow. Knows only how the process starts.
"""

import argparse
import signal
import sys

from engine_daemon import deathwatch
from engine_daemon.worker.pages import in_huge_pages, keep_freed_pages
from engine_daemon.worker.threads import sleep_when_idle


def main() -> None:
    """Run until the hub ends this process or goes away itself."""
    in_huge_pages()
    parser = argparse.ArgumentParser(prog="engine_daemon.worker")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--death-fd", type=int, required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--peers", type=int, nargs="*", default=[])
    arguments = parser.parse_args()
    deathwatch.arm(arguments.death_fd)
    _die_at_once()
    sleep_when_idle()
    keep_freed_pages()
    sys.exit(_run(arguments.socket, arguments.rank, arguments.peers))


def _die_at_once() -> None:
    """The system's own way of dying: a Python handler would wait for the running C call to end.

    Nothing here is worth a last word: what counts is in the hub's log.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _run(socket_path: str, rank: int, peers: list[int]) -> int:
    import logging

    from engine_daemon.worker.loop import run

    name = f"rank {rank}" if peers else "worker"
    logging.basicConfig(format=f"%(asctime)s {name} %(levelname)s %(message)s")
    logging.getLogger("engine_daemon").setLevel(logging.INFO)
    return run(socket_path, rank, peers)


if __name__ == "__main__":
    main()
