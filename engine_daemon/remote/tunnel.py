"""The way to a remote daemon for as long as somebody is attached: a folder with its sockets, and an
ssh that is started again when its link is lost.

Knows when to begin again and what to leave behind (nothing); ssh itself is `ssh`'s.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from engine_daemon.errors import InspectError
from engine_daemon.lookup import halted_words, is_halted
from engine_daemon.mending import LinkLost
from engine_daemon.paths import SOCKET_PATH_LIMIT, Paths, make_base, runtime_base
from engine_daemon.remote.address import Remote
from engine_daemon.remote.asking import PLAIN_PATH, refused
from engine_daemon.remote.ssh import Ssh, Stopped

PATIENCE_S: Final = 20.0
"""A link over which nothing comes is given up after so long; ssh itself notices within 15 s."""
ENDING_S: Final = 0.3
"""A process closes its sockets a moment before it has ended."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 8.0
LOGIN_PAUSE_S: Final = 60.0
"""Between tries where logging in was refused: many in a row have an address locked out."""
_PREFIX: Final = "s-"
_FRESH_S: Final = 60.0
_TEMPORARY: Final = 17
"""Bytes that ssh adds to the path of its control socket while it makes it."""


class Tunnel:
    """`with Tunnel(remote) as tunnel:` logs in; the daemon's socket is then at `endpoint`.

    `command`: the words of the remote `llm-inspect`; `tell` shows what ssh says while it logs in.
    Every method raises InspectError (exit 4).
    """

    def __init__(
        self,
        remote: Remote,
        tell: Callable[[str], None],
        command: Sequence[str] = (),
        runtime: Path | None = None,
    ) -> None:
        self.remote = remote
        self._tell = tell
        self._command = command
        self._base = runtime_base(runtime).absolute()
        self._folder: Path | None = None
        self._lock = -1
        self._ssh: Ssh | None = None
        self._closed = threading.Event()
        self._mending = threading.Lock()
        self._silent_since: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._refusal: InspectError | None = None
        self._again_at = 0.0

    def paths(self, own: Paths) -> Paths:
        """The paths of the remote daemon as a client on this machine needs them."""
        assert self._folder is not None
        endpoint = f"ipc://{self._folder / 'v.sock'}"
        return replace(own, name=self.remote.where, endpoint=endpoint)

    def __enter__(self) -> Self:
        self._make_folder()
        try:
            self._begin(ask=True)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _make_folder(self) -> None:
        """A private folder with a short, plain path; what killed viewers left goes."""
        longest = len(os.fsencode(self._base)) + len("/s-12345678/c") + _TEMPORARY
        if longest > SOCKET_PATH_LIMIT or not PLAIN_PATH.fullmatch(str(self._base)):
            raise refused(
                f"ssh cannot have its sockets in {self._base}",
                "Set LLM_INSPECT_RUNTIME_DIR to a short plain path, for example /tmp/me",
                "io",
            )
        make_base(self._base)
        _sweep(self._base)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._base))
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise refused(
                f"cannot write {self._base}: {error.strerror}", "Make it writable", "io"
            ) from None

    def _begin(self, *, ask: bool) -> None:
        assert self._folder is not None
        self._ssh = Ssh(
            self.remote,
            self._folder,
            self._command,
            ask=ask,
            tell=self._tell,
            stopping=self._closed.is_set,
        )
        try:
            self._ssh.open()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        ssh, self._ssh = self._ssh, None
        if ssh is not None:
            ssh.end()

    def lost(self, silent: bool) -> LinkLost:
        """What became of the link: ssh ended or stands, nothing comes over it, or the daemon there
        is gone. Waits a moment for the end of an ssh whose socket was closed."""
        ssh, host = self._ssh, self.remote.host
        if ssh is None or ssh.has_ended(0.0 if silent else ENDING_S):
            return LinkLost(f"the ssh link to {host} ended")
        if is_halted(ssh.process.pid):
            words = halted_words(ssh.process.pid)
            return LinkLost(f"the ssh link to {host} stalled: ssh is halted here", words)
        if silent:
            return LinkLost(f"the ssh link to {host} stalled", "or the daemon there is halted")
        return LinkLost(f"the daemon on {host} is gone")

    def mend(self) -> None:
        """See to it that the daemon can be reached through the socket; from any thread.

        Raises InspectError (exit 4) with why it cannot be now; called again, it tries again when a
        pause has passed, each one longer than the one before.
        """
        with self._mending:
            if self._closed.is_set():
                raise refused("the tunnel is closed", "", "ssh")
            if self._ssh is not None and self._ssh.running:
                self._look(self._ssh)
                return
            if self._refusal is not None and time.monotonic() < self._again_at:
                raise self._refusal
            try:
                self._give_up()
                self._begin(ask=False)
            except Stopped:
                raise refused("the tunnel is closed", "", "ssh") from None
            except InspectError as error:
                self._refused(error)
                raise
            self._pause_s, self._refusal, self._silent_since = FIRST_PAUSE_S, None, None

    def _look(self, ssh: Ssh) -> None:
        """ssh runs: hear whether the daemon is at the other end. Its link may only be stalled, and
        a new one might ask for a password: it gets some time."""
        try:
            ssh.greet()
            self._silent_since = None
        except Stopped:
            raise refused("the tunnel is closed", "", "ssh") from None
        except InspectError as error:
            now = time.monotonic()
            if error.code != "no_answer":
                self._silent_since = None
            elif self._silent_since is None:
                self._silent_since = now
            elif now - self._silent_since > PATIENCE_S:
                self._give_up()
                self._silent_since = None
            raise

    def _refused(self, error: InspectError) -> None:
        login = error.code == "ssh_login"
        if login:
            error.message = error.message.rstrip(".") + "; q leaves, then attach again"
        self._refusal = error
        self._again_at = time.monotonic() + (LOGIN_PAUSE_S if login else self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def close(self) -> None:
        """End ssh and remove the folder. Harmless when repeated; a `mend` under way ends, too."""
        self._closed.set()
        with self._mending:
            self._give_up()
            folder, self._folder = self._folder, None
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1


def _sweep(base: Path) -> None:
    """Remove the folders of viewers that were killed: nobody holds their lock."""
    with contextlib.suppress(OSError):
        for folder in base.glob(f"{_PREFIX}*"):
            if time.time() - folder.lstat().st_mtime > _FRESH_S and _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
