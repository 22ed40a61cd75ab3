"""Is a daemon there, where, and which process: its lock and its connection file.

Reads files; opens no socket.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Any, Final

from engine_daemon.errors import Exit, InspectError
from engine_daemon.file_locks import holders
from engine_daemon.outside import parse_json
from engine_daemon.paths import Paths, kind_of, name_option, read_regular

_SOCKET_BYTES: Final = 107
_PIDS: Final = 2**31
_LATEST: Final = 1e11
"""No daemon was started later, in seconds since 1970 (the year 5138)."""
_AGAIN: Final = "Move away what lies there: the daemon makes it again within seconds"


def is_running(paths: Paths) -> bool:
    """A daemon holds the lock. Needs no socket and answers at once."""
    try:
        fd = os.open(paths.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def read_connection(paths: Paths) -> dict[str, Any]:
    """The connection file. Raises InspectError (exit 4) when there is no daemon to connect to."""
    found: dict[str, Any] | None = None
    why: str | None = "it is garbled"
    try:
        found = parse_json(read_regular(paths.connection))
    except OSError as error:
        why = error.strerror
    except ValueError:
        pass
    if not is_running(paths):
        raise no_daemon(paths.name)
    if found is not None and _is_connection(found, paths.name):
        return found
    other = kind_of(paths.connection) not in ("", "a file")
    restart = f"If this stays so: llm-inspect daemon restart{name_option(paths.name)}"
    raise InspectError(
        f"the daemon {paths.name} runs, but {paths.connection} cannot be read: {why}",
        _AGAIN if other else restart,
        exit_code=Exit.DAEMON,
        code="no_answer",
    )


def endpoint_of(paths: Paths) -> str:
    """Where its viewers connect. Raises InspectError (exit 4) when there is nothing there."""
    if paths.endpoint is None:
        viewers = str(read_connection(paths)["viewers"])
        kind = kind_of(Path(viewers.removeprefix("ipc://")))
        if kind not in ("", "a socket"):  # a bare connect would wait for an answer
            raise InspectError(
                f"the daemon {paths.name} runs, but {paths.viewer_socket} is {kind}, no socket",
                _AGAIN,
                exit_code=Exit.DAEMON,
                code="no_answer",
            )
        return viewers
    socket = paths.endpoint.removeprefix("ipc://")
    try:
        there = stat.S_ISSOCK(os.stat(socket).st_mode) and os.access(socket, os.W_OK)
    except (OSError, ValueError):
        there = False
    if not there:
        raise InspectError(
            f"no daemon can be reached at {socket}",
            "It does not run, or is not shared: its owner starts it with --share",
            exit_code=Exit.DAEMON,
            code="no_daemon",
        )
    return paths.endpoint


def _is_connection(found: object, name: str) -> bool:
    """It has what the connection file of the daemon called so holds."""
    kinds: dict[str, type | tuple[type, ...]]
    kinds = {"viewers": str, "name": str, "version": str, "pid": int, "started": (int, float)}
    return (
        isinstance(found, dict)
        and all(isinstance(found.get(key), kind) for key, kind in kinds.items())
        and _is_address(found["viewers"])
        and found["name"] == name
        and found["version"].isprintable()
        and 1 < found["pid"] < _PIDS
        and 0 <= found["started"] < _LATEST
    )


def _is_address(viewers: str) -> bool:
    """A path of the kernel's: neither longer than a socket's name may be, nor with NUL in it."""
    try:
        path = os.fsencode(viewers.removeprefix("ipc://"))
    except ValueError:
        return False
    return viewers.startswith("ipc://") and b"\0" not in path and len(path) <= _SOCKET_BYTES


def owner(paths: Paths) -> int | None:
    """The process that holds the daemon's lock, where the system tells."""
    for pid in holders(paths.lock):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if b"engine_daemon.hub" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def process_state(pid: int) -> str:
    """The kernel's letter for it (proc(5)): R, S, T …; Z when it has ended, or is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return "Z"
    return stat.rpartition(")")[2].split()[0]


def is_halted(pid: int) -> bool:
    """The system says that it is stopped: by SIGSTOP, a terminal, or a debugger."""
    return process_state(pid) in ("T", "t")


def halted_words(pid: int) -> str:
    """How to have a halted process go on."""
    traced = process_state(pid) == "t"
    return f"a debugger holds pid {pid}" if traced else f"kill -CONT {pid} lets it go on"


def silent(paths: Paths) -> InspectError:
    """The error for a daemon that does not answer: halted, where the system says so."""
    pid = owner(paths) if paths.endpoint is None else None
    if pid is None or not is_halted(pid):
        return no_answer(paths.name)
    return InspectError(
        f"the daemon {paths.name} is halted (SIGSTOP or a debugger), pid {pid}",
        f"{halted_words(pid)}; llm-inspect daemon restart{name_option(paths.name)} ends it",
        exit_code=Exit.DAEMON,
        code="no_answer",
    )


def no_answer(name: str) -> InspectError:
    """The error for a daemon that is there and says nothing."""
    here = "/" not in name  # else it is somebody else's, or on another machine
    return InspectError(
        f"the daemon {name} does not answer",
        f"llm-inspect daemon restart{name_option(name)}" if here else "Have it restarted there",
        exit_code=Exit.DAEMON,
        code="no_answer",
    )


def no_daemon(name: str) -> InspectError:
    """The error for a daemon that is not there."""
    return InspectError(
        f"no daemon named {name} is running",
        f"Start one: llm-inspect daemon start{name_option(name)}",
        exit_code=Exit.DAEMON,
        code="no_daemon",
    )
