"""Put on PYTHONPATH by a test, this is in every process of a daemon before anything of ours.

`LLM_INSPECT_TEST_CLOCK`: a file with seconds that the wall clock is off by, read at each look.
`LLM_INSPECT_TEST_AUDIT`: a file that gets a line for each audit event that a test wants to see.
`LLM_INSPECT_TEST_HOLD`: a file; a worker waits for its lock in C, holding Python, when it starts
and at SIGUSR2.
`LLM_INSPECT_TEST_PEAK`: a file that gets the peak of each process's memory when it ends, in bytes.
`LLM_INSPECT_TEST_HOME_ON`: a kind of filesystem; $HOME is a mount of that kind in the mount table.
"""

import atexit
import ctypes
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

_CLOCK = os.environ.get("LLM_INSPECT_TEST_CLOCK")
_AUDIT = os.environ.get("LLM_INSPECT_TEST_AUDIT")
_HOLD = os.environ.get("LLM_INSPECT_TEST_HOLD")
_PEAK = os.environ.get("LLM_INSPECT_TEST_PEAK")
_HOME_ON = os.environ.get("LLM_INSPECT_TEST_HOME_ON")


def _shift_clock(path: str) -> None:
    real_s, real_ns = time.time, time.time_ns

    def shift() -> float:
        try:
            with open(path, encoding="utf-8") as file:
                return float(file.read() or 0)
        except (OSError, ValueError):
            return 0.0

    time.time = lambda: real_s() + shift()
    time.time_ns = lambda: real_ns() + int(shift() * 1e9)


def _audit(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    watched = (
        *("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "ctypes.dlopen"),
        *("subprocess.Popen", "socket.connect", "socket.getaddrinfo"),
    )
    role = " ".join(sys.orig_argv[-12:])

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "exec":
            where = getattr(arguments[0], "co_filename", "?")
            line = "" if os.path.isabs(where) or where.startswith("<frozen") else f"exec {where}"
        elif event == "open":
            line = f"open {arguments[0]}"
        else:
            line = f"{event} {arguments!r:.300}" if event in watched else ""
        if line:
            os.write(descriptor, f"{os.getpid()} {line} [{role}]\n".encode("utf-8", "replace"))

    sys.addaudithook(hook)


def _hold(path: str) -> None:
    def wait(*_: object) -> None:
        file = os.open(path, os.O_RDWR)
        # PyDLL, unlike CDLL, keeps the interpreter's lock while the call lasts.
        ctypes.PyDLL(None).flock(file, fcntl.LOCK_EX)
        os.close(file)

    if "engine_daemon.worker" in sys.orig_argv:
        signal.signal(signal.SIGUSR2, wait)
        wait()


def _tell_peak(path: str) -> None:
    def tell() -> None:
        # Not getrusage: what it tells began with the memory of the process that forked this one.
        status = Path("/proc/self/status").read_text("utf-8")
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{int(line.split()[1]) * 1024}\n")

    atexit.register(tell)


def _mount_home(kind: str) -> None:
    real = Path.read_text
    entry = f"9999 1 0:99 / {os.environ['HOME']} rw shared:1 - {kind} nas:/home rw\n"

    def read_text(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        text = real(path, encoding, errors)
        return text + entry if str(path) == "/proc/self/mountinfo" else text

    Path.read_text = read_text  # type: ignore[method-assign,assignment]


if _CLOCK:
    _shift_clock(_CLOCK)
if _AUDIT:
    _audit(_AUDIT)
if _HOLD:
    _hold(_HOLD)
if _PEAK:
    _tell_peak(_PEAK)
if _HOME_ON:
    _mount_home(_HOME_ON)
