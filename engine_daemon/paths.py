"""Where things lie: runtime directory, logs, models, configuration (CONTRACT section 6).

Makes and verifies directories; knows nothing of what is put in them.
"""

import contextlib
import errno
import os
import pwd
import re
import socket
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine_daemon.errors import Exit, InspectError

APP: Final = "llm-inspect"
DEFAULT_NAME: Final = "default"
SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a Unix socket path that every Linux accepts."""
_COMMAND: Final = re.compile(
    r"\bllm-inspect (?:(?:daemon (?!list)|sessions |models )[a-z]+|resume|pause|step|close)\b"
    r"(?! --name)"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_name(name: str) -> str:
    """The daemon's name if it is a legal one; InspectError otherwise."""
    if not _NAME.fullmatch(name):
        raise InspectError(
            f"{name!r} is no daemon name", "Use 1-64 characters of A-Z a-z 0-9 . _ -"
        )
    return name


def name_option(name: str) -> str:
    """` --name NAME` where that is needed, for commands written in hints."""
    return "" if name == DEFAULT_NAME or "/" in name else f" --name {name}"


def with_name(text: str, name: str) -> str:
    """A hint whose commands say which daemon they mean, where that is needed."""
    option = name_option(name)
    return _COMMAND.sub(lambda found: found[0] + option, text) if option else text


def short_hash(name: str) -> str:
    """First 8 hex digits of SHA-256 of `name`: short and safe in paths."""
    import hashlib  # loads OpenSSL: not for who only imports this

    return hashlib.sha256(name.encode()).hexdigest()[:8]


def host() -> str:
    """This machine's name as used for folders and in recordings."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname()) or "localhost"


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories and files of one daemon. None of them is made by asking for it."""

    name: str
    runtime: Path
    state: Path
    cache: Path
    config: Path
    endpoint: str | None = None
    """Of somebody else's daemon, of which nothing but the socket can be seen."""

    @property
    def viewer_socket(self) -> Path:
        """ROUTER for viewers."""
        return self.runtime / "v.sock"

    @property
    def engine_socket(self) -> Path:
        """ROUTER for worker ranks and the tokens process."""
        return self.runtime / "e.sock"

    @property
    def lock(self) -> Path:
        """flock held for the daemon's life."""
        return self.runtime / "lock"

    @property
    def connection(self) -> Path:
        """`conn.json`, written after every bind."""
        return self.runtime / "conn.json"

    @property
    def pieces(self) -> Path:
        """Table id → bytes (`protocol.pieces`)."""
        return self.runtime / "pieces.bin"

    @property
    def options(self) -> Path:
        """What the daemon was last started with."""
        return self.state / "options.json"

    @property
    def before(self) -> Path:
        """What it was started with before a restart that has not got through yet."""
        return self.state / "options.before.json"

    @property
    def log(self) -> Path:
        """The daemon's own log file."""
        return self.state / "daemon.log"

    @property
    def recordings(self) -> Path:
        """One `<session>.lir` a session."""
        return self.state / "recordings"

    @property
    def engine_counter(self) -> Path:
        """How often a worker was started under this name."""
        return self.state / "engine.count"


def runtime_base(configured: Path | None = None) -> Path:
    """The folder that holds one folder a daemon: environment, `config.toml`, default."""
    chosen = os.environ.get("LLM_INSPECT_RUNTIME_DIR")
    return Path(chosen) if chosen else configured or _default_runtime_base()


def _default_runtime_base() -> Path:
    """Short, local, and not removed at logout."""
    return Path(f"/tmp/llmi-{os.getuid()}")


def _xdg(variable: str, fallback: str) -> Path:
    """`$variable/llm-inspect`; a relative value counts as unset, as the XDG rule says."""
    chosen = os.environ.get(variable, "")
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / fallback) / APP


def paths_for(
    name: str = DEFAULT_NAME,
    *,
    runtime: Path | None = None,
    state: Path | None = None,
    cache: Path | None = None,
    config: Path | None = None,
) -> Paths:
    """The paths of daemon `name`; the arguments are `config.toml [paths]` where it has any.

    Raises InspectError when the runtime directory is too deep for a socket.
    """
    runtime = runtime_base(runtime) / short_hash(check_name(name))
    if len(os.fsencode(runtime / "v.sock")) > SOCKET_PATH_LIMIT:
        raise InspectError(
            f"the runtime directory is too deep for a socket: {runtime}",
            "Set LLM_INSPECT_RUNTIME_DIR to a short path, for example /tmp/me",
            exit_code=Exit.DAEMON,
        )
    state_base = state or _xdg("XDG_STATE_HOME", ".local/state")
    return Paths(
        name=name,
        runtime=runtime,
        state=state_base / host() / short_hash(name),
        cache=cache or _xdg("XDG_CACHE_HOME", ".cache"),
        config=config or _xdg("XDG_CONFIG_HOME", ".config"),
    )


WHERE: Final = "NAME, USER/NAME, ssh://[user@]host[:port][/NAME] or ipc://PATH"
"""What `attach` understands."""


def foreign(where: str) -> Paths:
    """Somebody else's daemon: `user/NAME`, or `ipc://PATH` of its socket. Everything but the
    socket is one's own. InspectError for a user or name that cannot be."""
    own = paths_for()
    if where.startswith("ipc://"):
        return replace(own, name=where, endpoint=where)
    user, _, name = where.partition("/")
    if not user or ":" in user or "/" in name:
        raise InspectError(f"{where!r} is no place to attach to", f"attach takes {WHERE}")
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise InspectError(
            f"there is no user {user!r} on this machine", f"attach takes {WHERE}"
        ) from None
    socket = Path(f"/tmp/llmi-{uid}") / short_hash(check_name(name)) / "v.sock"
    return replace(own, name=where, endpoint=f"ipc://{socket}")


def make_private(directory: Path) -> None:
    """Create `directory` 0700 if missing, and refuse one that is not ours alone.

    Raises InspectError when it is a symbolic link, no directory, or another user's. Bits of group
    and others are taken away when the directory is ours (a shared daemon leaves 0711 behind).
    """
    if _make_ours(directory) != 0o700:
        os.chmod(directory, 0o700)


def make_base(base: Path) -> None:
    """The folder above the daemons' for something else of ours: made if missing, refused if others
    could put something there. A shared daemon's keeps its passage (0711)."""
    if base == _default_runtime_base():
        _make_ours(base)
        return
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unmakable(base, error) from None


def _make_ours(directory: Path) -> int:
    """Create it 0700 if missing; its mode. InspectError where it is not ours alone."""
    try:
        with contextlib.suppress(FileExistsError):
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # no directory: said below
            directory.mkdir(mode=0o700, exist_ok=True)
        info = os.lstat(directory)
    except OSError as error:
        raise _unmakable(directory, error) from None
    mode = stat.S_IMODE(info.st_mode)
    problem = foreign_folder(info)
    if problem:
        raise InspectError(
            f"{directory} {problem}; refusing to put sockets there",
            "Remove it, or set LLM_INSPECT_RUNTIME_DIR to a directory of your own",
            exit_code=Exit.DAEMON,
        )
    return mode


def foreign_folder(info: os.stat_result) -> str:
    """What keeps a folder (not followed: `lstat`) from being ours alone; empty when nothing."""
    mode = stat.S_IMODE(info.st_mode)
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}"
    return f"is open to others (mode {mode:o})" if mode & 0o066 else ""


def _unmakable(directory: Path, error: OSError) -> InspectError:
    return InspectError(
        f"cannot make {directory}: {error.strerror}",
        "Set LLM_INSPECT_RUNTIME_DIR to a directory of your own",
        exit_code=Exit.DAEMON,
        code="io",
    )


def make_runtime(paths: Paths) -> None:
    """The daemon's runtime directory, private; so is the default folder above it.

    A folder that somebody chose keeps the mode its owner gave it.
    """
    if paths.runtime.parent == _default_runtime_base():
        make_private(paths.runtime.parent)
    make_private(paths.runtime)


_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def kind_of(path: Path) -> str:
    """What lies there, in words; empty where nothing does."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    return next((words for test, words in _KINDS if test(mode)), "a device")


def check_places(paths: Paths) -> None:
    """Before a daemon starts: where its files and folders will be lies nothing of another kind.

    Raises InspectError, exit 4: a directory cannot be written, and a pipe would be waited for.
    """
    for path in (paths.connection, paths.pieces, paths.options, paths.before, paths.log):
        _check_kind(path, "a file")
        if path != paths.log:  # written beside, and renamed into its place
            _check_kind(path.with_name(f"{path.name}.new"), "a file")
    for path in (paths.lock, paths.engine_counter):
        _check_kind(path, "a file", links=False)
    for path in (paths.viewer_socket, paths.engine_socket):
        _check_kind(path, "a socket", links=False)
    for path in (paths.state, paths.recordings):
        _check_kind(path, "a directory")


def _check_kind(path: Path, wanted: str, *, links: bool = True) -> None:
    kind = kind_of(path)
    if kind == "a link" and links:
        kind = _kind_behind(path)
    if kind not in ("", wanted):
        raise InspectError(
            f"{path} is {kind}, where the daemon needs {wanted}",
            "Move it away, then start again",
            exit_code=Exit.DAEMON,
            code="in_the_way",
        )


def _kind_behind(link: Path) -> str:
    """What a link leads to, as `kind_of`: a link where it leads in a circle."""
    try:
        return kind_of(link.resolve(strict=True))
    except FileNotFoundError:
        return ""
    except (OSError, RuntimeError) as error:  # for a circle: RuntimeError before Python 3.13
        circle = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
        return "a link that leads in a circle" if circle else ""


def let_through(paths: Paths) -> None:
    """Let other users reach the sockets by their names (0711), after `make_runtime`.

    Raises InspectError when a folder above, which somebody chose, keeps them out.
    """
    base = paths.runtime.parent
    os.chmod(paths.runtime, 0o711)
    if base == _default_runtime_base():
        os.chmod(base, 0o711)
    if not is_let_through(paths):
        raise InspectError(
            f"{base} keeps other users out: the daemon cannot be shared",
            f"chmod o+x {base}, or start it without --share",
            exit_code=Exit.DAEMON,
        )


def is_let_through(paths: Paths) -> bool:
    """Other users can reach the sockets by their names."""
    folders = (paths.runtime, *paths.runtime.parents)
    return all(os.stat(folder).st_mode & 0o001 for folder in folders)


def read_regular(path: Path) -> bytes:
    """The bytes of a file; OSError also where it is none: a pipe would be waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with open(fd, "rb") as file:
        return file.read()


def unusable(error: OSError) -> InspectError:
    """The error of a folder of ours that cannot be written."""
    where = f" {error.filename}" if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    other = error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP)
    hint = "Make room there" if full else "Move it away" if other else "Make it writable"
    return InspectError(
        f"cannot write{where}: {error.strerror}",
        f"{hint}, or choose another folder in config.toml [paths]",
        exit_code=Exit.DAEMON,
        code="io",
    )
