"""`engine_daemon.deathwatch`: no way of dying leaves a child behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine_daemon import deathwatch

BUSY = "\nwhile True: sum(range(10 ** 6))"
ASLEEP = "\nimport time; time.sleep(600)"
IN_TRY = "\nimport time\nwhile True:\n try: time.sleep(600)\n except BaseException: pass"


@contextmanager
def child(program: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    read_end, write_end = os.pipe()
    arm = f"import sys; from engine_daemon import deathwatch; deathwatch.arm({read_end}); "
    arm += "print('armed', flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", arm + program], pass_fds=(read_end,), stdout=subprocess.PIPE
    )
    os.close(read_end)
    assert process.stdout is not None
    assert process.stdout.readline() == b"armed\n"
    try:
        yield process, write_end
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("program", [BUSY, ASLEEP, IN_TRY], ids=["busy", "asleep", "in a try"])
def test_the_child_ends_when_the_other_end_is_closed(program: str) -> None:
    with child(program) as (process, write_end):
        assert process.poll() is None
        os.close(write_end)
        assert process.wait(10) == 1


def test_bytes_in_the_pipe_mean_nothing() -> None:
    with child("; print(sys.stdin is None, flush=True)" + ASLEEP) as (process, write_end):
        os.write(write_end, b"hello")
        assert process.stdout is not None
        process.stdout.readline()
        assert process.poll() is None
        os.close(write_end)
        assert process.wait(10) == 1


@pytest.mark.pitfall("P30")
def test_a_parent_that_is_gone_before_the_watch_is_armed_is_noticed() -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    program = f"from engine_daemon import deathwatch; deathwatch.arm({read_end})" + ASLEEP
    process = subprocess.Popen([sys.executable, "-P", "-c", program], pass_fds=(read_end,))
    os.close(read_end)
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()


def test_a_descriptor_that_is_not_open() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        deathwatch.arm(9999)
