"""The real command `llm-inspect` in directories of its own; what it started is ended by pid."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.daemons import PATIENCE_S, environment, wait_for
from tests.end_to_end.terminal import Terminal

COMMAND = Path(sys.executable).with_name("llm-inspect")
SCRIPTED = ("--engine", "scripted", "--model", "scripted:rate=0")

Line = dict[str, Any]


class Place:
    """One user's world: environment, working directory, daemons."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="li", dir="/tmp"))
        self.cwd = self.root / "cwd"
        self.cwd.mkdir()
        (self.root / "run").mkdir(mode=0o700)
        self.env = {**os.environ, **environment(self.root), "TERM": "xterm-256color"}
        for size in ("COLUMNS", "LINES"):  # else they count more than the terminal's own size
            self.env.pop(size, None)
        self._running: list[Running] = []

    def run(self, *words: str, stdin: bytes = b"", code: int | None = 0) -> "Finished":
        """Run a command to its end; its exit code must be `code` (None: any)."""
        done = Finished(
            subprocess.run(
                [COMMAND, *words],
                input=stdin,
                capture_output=True,
                env=self.env,
                cwd=self.cwd,
                timeout=PATIENCE_S * 3,
                check=False,
            )
        )
        assert code is None or done.code == code, (words, done)
        assert "--debug" in words or "Traceback" not in done.err
        return done

    def start(self, *words: str) -> "Running":
        """Start a command and leave it running."""
        running = Running([str(COMMAND), *words], self.env, self.cwd)
        self._running.append(running)
        return running

    def terminal(
        self, *words: str, columns: int = 120, lines: int = 40, sized: bool = True
    ) -> Terminal:
        """Start a command in a terminal; not `sized`: it does not tell its size."""
        return Terminal([str(COMMAND), *words], self.env, self.cwd, columns, lines, sized=sized)

    def json(self, *words: str) -> list[Line]:
        """The JSON lines of a command."""
        return self.run(*words).lines

    def status(self) -> Line:
        """`daemon status --json`."""
        (status,) = self.json("daemon", "status", "--json")
        return status

    def session(self, name: str) -> Line:
        """An open session as the daemon sees it."""
        sessions: list[Line] = self.status()["sessions"]
        (found,) = [session for session in sessions if session["session"] == name]
        return found

    def connections(self) -> Iterator[Line]:
        """The connection file of every daemon of this place."""
        for path in (self.root / "run").glob("*/conn.json"):
            with suppress(OSError, ValueError):
                found: Line = json.loads(path.read_bytes())
                yield found

    def kill(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process of this place."""
        os.kill(pid, number)

    def recording(self, session: str) -> Path:
        """The daemon's own recording of a session."""
        (path,) = (self.root / "state").rglob(f"{session}.lir")
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._running:
            running.end()
        for connection in self.connections():
            pid = int(connection["pid"])
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda pid=pid: not alive(pid))  # type: ignore[misc]
        shutil.rmtree(self.root, ignore_errors=True)


class Finished:
    """What a command left."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr.decode()

    @property
    def lines(self) -> list[Line]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out[-2000:]!r}\n{self.err[-2000:]}"


class Running:
    """A command that is running, with pipes for its output."""

    def __init__(self, words: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            words,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # a line read here is never one that `finish` misses
        )

    def line(self) -> Line:
        """The next JSON line."""
        assert self.process.stdout is not None
        raw = self.process.stdout.readline()
        assert raw, self.error()
        found: Line = json.loads(raw)
        return found

    def until(self, event: str, step: int | None = None) -> Line:
        """The next line of this event, and step."""
        while True:
            line = self.line()
            if line["event"] == event and step in (None, line.get("step")):
                return line

    def said(self, words: str) -> str:
        """The next line of standard error with these words."""
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            if words in raw.decode():
                return raw.decode()
        raise AssertionError(f"{words!r} was never said")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def finish(self, code: int) -> Finished:
        """Wait for its end; what it wrote since the last line that was read."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        done = subprocess.CompletedProcess([], self.process.returncode, out, err)
        finished = Finished(done)
        assert finished.code == code, finished
        assert "Traceback" not in finished.err
        return finished

    def error(self) -> str:
        """What it said on standard error, once it is over."""
        return self.process.communicate(timeout=PATIENCE_S)[1].decode()

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait()


def alive(pid: int) -> bool:
    """A process of this id is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
