"""A terminal for the real command: a pty whose picture pyte draws.

Waits for what is to be seen; never sleeps.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

from tests.daemons import PATIENCE_S

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "ctrl+c": "\x03",
    "ctrl+n": "\x0e",
    "space": " ",
}
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_NOT_FOR_PYTE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]")
"""Sequences pyte would print (keyboard protocol); a real terminal takes them."""


class Terminal:
    """One command in one terminal."""

    def __init__(
        self,
        words: Sequence[str],
        env: dict[str, str],
        cwd: Path,
        columns: int = 120,
        lines: int = 40,
        *,
        sized: bool = True,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self._master, slave = pty.openpty()
        if sized:
            self.resize(columns, lines)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *words],
            env=env,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                data = b""
            with self._changed:
                self.output += data
                self._stream.feed(_NOT_FOR_PYTE.sub(b"", data))
                self._over = not data
                self._changed.notify_all()
            if not data:
                return

    def resize(self, columns: int, lines: int) -> None:
        """Another size, as when a window is dragged."""
        with self._changed:
            self._screen.resize(lines, columns)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, *keys: str) -> None:
        """Press keys, or type text."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())

    def text(self) -> str:
        """The picture as lines."""
        with self._changed:
            return "\n".join(self._screen.display)

    def until(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until the picture has this text (or satisfies this); the picture.

        A frame arrives in parts: what else it holds is waited for, too, never just asserted.
        """
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while True:
                picture = "\n".join(self._screen.display)
                if wanted in picture if isinstance(wanted, str) else wanted(picture):
                    return picture
                left = deadline - time.monotonic()
                assert left > 0, f"never seen: {wanted!r}\n{picture}"
                assert not self._over, f"ended before {wanted!r}\n{picture}"
                self._changed.wait(left)

    def finish(self, code: int = 0) -> str:
        """Wait for the command's end; the last picture."""
        assert self.process.wait(timeout=PATIENCE_S) == code, self.text()
        self._reader.join(timeout=PATIENCE_S)
        return self.text()

    def __enter__(self) -> Self:
        return self

    def hang_up(self) -> None:
        """Close the window: nobody holds the terminal's other end any more."""
        os.close(self._master)
        self._master = -1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(timeout=PATIENCE_S)
        if self._master >= 0:
            os.close(self._master)
