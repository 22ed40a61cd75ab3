"""A supervised child process: started exec-clean, tied to the hub by a death pipe, ended in time.

Knows nothing of what a child does; `workers` gives the processes their meaning.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_daemon.lookup import is_halted, process_state

KILL_AFTER_S: Final = 1.0
"""How long a child may take to leave after SIGTERM."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended: exactly one of `signal` (its name) and `exit_code`."""

    signal: str | None
    exit_code: int | None

    def __str__(self) -> str:
        return f"was killed by {self.signal}" if self.signal else f"ended with {self.exit_code}"


class Child:
    """One running child. It reads EOF on its death pipe when the hub ends, however it ends.

    `fds` are open in it under the same numbers.
    """

    def __init__(
        self, module: str, socket: Path, arguments: Sequence[str] = (), fds: Sequence[int] = ()
    ) -> None:
        read_end, self._death_pipe = os.pipe()
        try:
            # -P and cwd "/": no module of a user's working directory can be imported.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    module,
                    "--socket",
                    str(socket),
                    "--death-fd",
                    str(read_end),
                    *arguments,
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=(read_end, *fds),
            )
        except BaseException:
            os.close(self._death_pipe)
            raise
        finally:
            os.close(read_end)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """Its one process, as `Ranks` has several."""
        return [self.pid]

    def ending(self) -> Ending | None:
        """How it ended; None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            return Ending(_signal_name(-code), None)
        return Ending(None, code)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def dump(self) -> bool:
        """Have it write its stacks to the log; False when it does not run. Only once it is known to
        take the signal."""
        runs = not is_halted(self.pid) and process_state(self.pid) not in ("Z", "X")
        if runs:
            os.kill(self.pid, signal.SIGUSR1)
        return runs

    def close(self) -> None:
        """Give up the death pipe; an ended child needs nothing more."""
        if self._death_pipe >= 0:
            os.close(self._death_pipe)
            self._death_pipe = -1


def end_all(children: Sequence[Child]) -> None:
    """Terminate, wait up to `KILL_AFTER_S` for all of them together, then kill."""
    for child in children:
        if child.ending() is None:
            os.kill(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + KILL_AFTER_S
    for child in children:
        try:
            child._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child._process.wait()
        child.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
