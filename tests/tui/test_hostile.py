"""What reaches a real terminal: hostile tokens add no escape sequence to those of plain ones."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.tui.test_text import HOSTILE

SEQUENCE = re.compile(
    rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_].*?\x1b\\|\x1b.",
    re.DOTALL,
)
MOVES = re.compile(rb"\x1b\[[0-9;]*[Hm]")
"""Places and colours differ with the text; everything else must not."""
SCENES = ("main", "dialogs", "people", "replay", "small")
SPLIT = [
    b"\x1b",
    b"]52;c;",
    b"eA==",
    b"\x07",
    b"\x9b",
    b"31m",
    b"\xc2",
    b"\x9d0;x",
    b"\x1b[",
    b"2J",
]


def captured(kind: str, scene: str, tmp_path: Path) -> bytes:
    """Everything the program writes to its terminal while `hostile_screen` plays a scene."""
    master, slave = pty.openpty()
    rows, columns = (5, 20) if scene == "small" else (40, 120)
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "HOME": str(tmp_path)}
    env.pop("NO_COLOR", None)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.tui.hostile_screen", kind, scene],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=env,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    os.close(slave)
    out, end = b"", time.monotonic() + 60
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([master], [], [], 0.2)
            if ready:
                try:
                    part = os.read(master, 65536)
                except OSError:
                    break
                if not part:
                    break
                out += part
            elif child.poll() is not None:
                break
        assert child.wait(timeout=10) == 0, out[-2000:]
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        os.close(master)
    return out


def kinds(raw: bytes) -> set[bytes]:
    """The sequences other than moves and colours."""
    return {found for found in SEQUENCE.findall(raw) if not MOVES.fullmatch(found)}


@pytest.mark.terminal
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.fault("T3", "S9")
def test_hostile_tokens_add_no_sequence(scene: str, tmp_path: Path) -> None:
    plain = captured("plain", scene, tmp_path)
    hostile = captured("hostile", scene, tmp_path)
    assert kinds(hostile) <= kinds(plain)
    left = SEQUENCE.sub(b"", hostile)
    assert not set(left) & (set(range(0x20)) - {0x0A, 0x0D})
    text = left.decode("utf-8", "replace")
    assert not [char for char in text if "\x7f" <= char < "\xa0" or char in "\u202e\u200b\u2028"]
    assert "�" not in text
    assert scene != "main" or "␛" in text


def test_the_samples_are_hostile() -> None:
    assert kinds(b"".join(HOSTILE))
    assert b"\x1b" in b"".join(SPLIT)
