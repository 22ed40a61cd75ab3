"""`python -P -m engine_daemon.worker.pull`: bring a model into the cache, load nothing.

Tells its progress as JSON lines on standard output, for the command that started it, and ends
with that process. Knows no daemon.
"""

import argparse
import json
import os
import signal
import sys
import time

from engine_daemon import deathwatch
from engine_daemon.errors import Exit, InspectError
from engine_daemon.installing import IN_A_CLONE

_EVERY_S = 0.05


class Teller:
    """Progress as lines; not more of a stage than anybody can read."""

    def __init__(self) -> None:
        self._stage = ""
        self._at = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """One report; a new stage and the end of one are always told."""
        now = time.monotonic()
        over = total > 0 and done >= total
        if stage == self._stage and not over and now - self._at < _EVERY_S:
            return
        self._stage, self._at = stage, now
        tell({"stage": stage, "done": done, "total": total})


def tell(line: dict[str, object]) -> None:
    """One line to whoever started this."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Find, download or convert; the last line is `folder` or `error`."""
    parser = argparse.ArgumentParser(prog="engine_daemon.worker.pull")
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision")
    parser.add_argument("--cache-dir", required=True)
    parser.add_argument("--death-fd", type=int, required=True)
    arguments = parser.parse_args()
    deathwatch.arm(arguments.death_fd)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_pull(arguments.model, arguments.revision, arguments.cache_dir))


def _pull(model: str, revision: str | None, cache_dir: str) -> int:
    tell({"stage": "look up", "done": 0, "total": 0})
    try:
        # Here, so that a missing library is an error like any other.
        from engine_daemon.protocol.worker import EngineOptions
        from engine_daemon.worker.models import locate

        options = EngineOptions(model=model, revision=revision, cache_dir=cache_dir)
        folder = locate(options, Teller())
    except InspectError as error:
        tell({"error": error.code, "message": error.message, "hint": error.hint})
        return error.exit_code
    except ImportError as error:
        tell(
            {
                "error": "no_engine",
                "message": f"the engine is not installed: {error.name or error} is missing",
                "hint": IN_A_CLONE,
            }
        )
        return Exit.MODEL
    size = sum(x.stat().st_size for x in folder.iterdir() if x.is_file())
    tell({"folder": os.fspath(folder), "bytes": size})
    return Exit.DONE


if __name__ == "__main__":
    main()
