"""One run of the system's `ssh`: logged in, asked for the daemon, one Unix socket forwarded.

The remote shell waits for the end of its input, which is a pipe of ours: however this process ends,
ssh ends with it. Knows processes; when to begin again is `tunnel`'s.
"""

import contextlib
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from engine_daemon.remote.address import Remote
from engine_daemon.remote.asking import Asked, heard, refused, script, socket_of

ANSWER_S: Final = 30.0
"""For the command there, once somebody is logged in."""
UNASKED_S: Final = 60.0
"""For logging in where nobody is asked for anything."""
GREETING_S: Final = 3.0
FORWARD_S: Final = 10.0
END_S: Final = 1.0
_POLL_S: Final = 0.02
_MOST_LINES: Final = 10_000
_LONGEST_LINE: Final = 2**20
"""Of what comes from over there; more is passed over."""
_HELD_S: Final = 0.5
"""What ssh says is held back so long: last words are told as the error, not twice."""
_OPTIONS: Final = (
    "ControlMaster=yes",
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "UpdateHostKeys=no",
    "StreamLocalBindUnlink=yes",
    "StreamLocalBindMask=0177",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ConnectTimeout=15",
    "LogLevel=INFO",
)
"""Of the connection, over what the person's configuration says; all else is as it says."""


class Stopped(Exception):
    """Nobody wants it any more."""


class Ssh:
    """A connection to `remote` whose files lie in `folder`.

    Args:
        command: the words of the remote `llm-inspect`; none: it is looked for.
        ask: a person is at the terminal and may be asked for a password or about a key.
        tell: shows a line of ssh's to that person.
        stopping: looked at while waiting; then `Stopped` is raised.
    """

    def __init__(
        self,
        remote: Remote,
        folder: Path,
        command: Sequence[str],
        *,
        ask: bool,
        tell: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._remote = remote
        self._folder = folder
        self._show = tell
        self._stopping = stopping
        self._mark = f"llm-inspect-{os.urandom(8).hex()}"
        self._said: list[str] = []
        self._words: deque[tuple[float, str]] = deque(maxlen=50)
        self._telling = ask
        self._greeted = False
        self.control.unlink(missing_ok=True)
        batch = [] if ask else ["-o", "BatchMode=yes"]
        self.process = subprocess.Popen(
            [_program(), "-T", "-a", "-x", *batch, *self._connection(), "--", remote.host, "sh -s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A person's terminal is asked by ssh itself; later it is the screen's alone.
            start_new_session=not ask,
        )
        for stream, take in ((self.process.stdout, self._hear), (self.process.stderr, self._note)):
            threading.Thread(target=_lines, args=(stream, take), daemon=True).start()
        self._write(script(remote.name, self._mark, command))

    @property
    def control(self) -> Path:
        """Socket by which the running ssh is told to forward."""
        return self._folder / "c"

    @property
    def forwarded(self) -> Path:
        """This side's end of the daemon's socket."""
        return self._folder / "v.sock"

    @property
    def running(self) -> bool:
        """The process is there."""
        return self.process.poll() is None

    def has_ended(self, patience_s: float) -> bool:
        """It has, or does within so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        return not self.running

    def _connection(self) -> list[str]:
        words = [] if self._remote.user is None else ["-l", self._remote.user]
        words += [] if self._remote.port is None else ["-p", str(self._remote.port)]
        for option in (*_OPTIONS, f"ControlPath={self.control}"):
            words += ["-o", option]
        return words

    def _write(self, text: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: said where it is waited for
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def _hear(self, line: str) -> None:
        if len(self._said) < _MOST_LINES:
            self._said.append(line)

    def _note(self, line: str) -> None:
        if line.strip():
            self._words.append((time.monotonic(), line))

    # Opening ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Log in, find the daemon, forward its socket and hear its greeting.

        Raises InspectError (exit 4) with what stands in the way.
        """
        asked = self._answer()
        self._telling = False
        self._forward(socket_of(asked, self._remote))
        self.greet()

    def _answer(self) -> Asked:
        limit = None if self._telling else time.monotonic() + UNASKED_S
        while True:
            over = not self.running
            asked = heard(list(self._said), self._mark)
            if asked.word in ("none", "ended"):
                return asked
            if over:
                raise self._ended(asked)
            if asked.word and (limit is None or self._telling):
                self._telling, limit = False, time.monotonic() + ANSWER_S
            if limit is not None and time.monotonic() > limit:
                raise self._silent(asked)
            self._tell()
            self._wait()

    def _tell(self) -> None:
        """What ssh says to the person that it asks, unless these are its last words."""
        while self._telling and self._words and time.monotonic() - self._words[0][0] > _HELD_S:
            self._show(self._words.popleft()[1])

    def _wait(self) -> None:
        if self._stopping():
            raise Stopped
        time.sleep(_POLL_S)

    def _forward(self, there: str) -> None:
        """Tell the running ssh to listen here for that."""
        self.forwarded.unlink(missing_ok=True)
        done = subprocess.Popen(
            [
                *(_program(), "-F", "none", "-o", f"ControlPath={self.control}"),
                *("-o", "ExitOnForwardFailure=yes", "-O", "forward"),
                *("-L", f"{self.forwarded}:{there}", "--", self._remote.host),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        limit = time.monotonic() + FORWARD_S
        try:
            while done.poll() is None and time.monotonic() < limit:
                self._wait()
        finally:
            if done.poll() is None:
                done.kill()
            said = done.communicate()[1].decode("utf-8", "replace").split("\n")[0]
        if done.returncode != 0:
            why = self._last() if not self.running else said
            raise refused(
                f"ssh to {self._remote.login} forwards no socket: {why or 'it does not answer'}",
                f"See what it says: {self._remote.by_hand}",
                "ssh",
            )

    def greet(self, patience_s: float = GREETING_S) -> None:
        """Connect through it and hear the daemon's first byte.

        Raises InspectError: code `no_answer` when nothing came in time, else it was turned away.
        """
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self.forwarded))
            except OSError:
                raise self._turned_away() from None
            limit = time.monotonic() + patience_s
            while not select.select([probe], [], [], 0)[0]:
                if time.monotonic() > limit:
                    raise refused(
                        f"nothing comes over the ssh link to {self._remote.host}",
                        f"Look there: {self._remote.by_hand} llm-inspect daemon status",
                        "no_answer",
                    )
                self._wait()
            try:
                greeting = probe.recv(1)
            except OSError:
                greeting = b""
        if not greeting:
            raise self._turned_away()
        self._greeted = True

    # Errors -----------------------------------------------------------------------------------

    def _last(self) -> str:
        """The last line ssh said, without its own name."""
        line = self._words[-1][1] if self._words else ""
        return line.removeprefix("ssh: ").strip()

    def _ended(self, asked: Asked) -> Exception:
        login = self._remote.login
        for _ in range(10):  # its last words may still be on their way
            if self._words:
                break
            self._wait()
        if asked.word:
            return refused(f"the ssh link to {login} ended", "Try again", "link_lost")
        said, why = " ".join(line for _, line in self._words), self._last()
        if "Permission denied" in said or "Host key verification failed" in said:
            found = next(
                (line for _, line in self._words if "denied" in line or "verification" in line), why
            )
            return refused(
                f"cannot log in as {login}: {found}",
                f"It must work by hand first: {self._remote.by_hand}",
                "ssh_login",
            )
        return refused(
            f"cannot reach {login}: {why or f'ssh ended with {self.process.returncode}'}",
            f"It must work by hand first: {self._remote.by_hand}",
            "ssh",
        )

    def _silent(self, asked: Asked) -> Exception:
        what = "llm-inspect" if asked.word == "asked" else "the shell"
        return refused(
            f"{what} on {self._remote.login} says nothing",
            f"See what it does: {self._remote.by_hand} llm-inspect daemon status",
            "no_answer",
        )

    def _turned_away(self) -> Exception:
        """The connection was closed at once, by the ssh server or for want of a daemon. The server
        gives one reason for both; but a daemon that has just told its state is there.
        """
        host = self._remote.host
        if not self.running:
            return refused(f"the ssh link to {self._remote.login} ended", "Try again", "link_lost")
        if not self._greeted:
            return refused(
                f"the ssh server on {host} forwards no Unix sockets, or the daemon has just ended",
                "Try again; else it needs AllowStreamLocalForwarding yes in its sshd_config",
                "forbidden",
            )
        return refused(
            f"no daemon named {self._remote.name} is running on {host}",
            f"Start one: {self._remote.by_hand} llm-inspect daemon start",
            "no_daemon",
        )

    # The end ----------------------------------------------------------------------------------

    def end(self) -> None:
        """Its input ends, then it is told to go, then killed (halted ones hear nothing else)."""
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for path in (self.control, self.forwarded):
            path.unlink(missing_ok=True)


def _program() -> str:
    found = shutil.which("ssh")
    if found is None:
        raise refused("there is no ssh here", "Install the OpenSSH client", "ssh")
    return found


def _lines(stream: IO[bytes], take: Callable[[str], None]) -> None:
    """Hand every line on; to the end, so that nobody waits for room in the pipe."""
    with stream, contextlib.suppress(OSError, ValueError):
        while raw := stream.readline(_LONGEST_LINE):
            take(raw.decode("utf-8", "replace").rstrip("\r\n"))
