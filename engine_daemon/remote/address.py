"""Where a remote daemon is: `ssh://[user@]host[:port][/NAME]`.

Knows texts only. What could become an option of `ssh`, or mean something to a shell, is refused.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.paths import DEFAULT_NAME, check_name

SCHEME: Final = "ssh://"
_WHERE: Final = re.compile(
    r"ssh://(?:(?P<user>[^/]*)@)?(?P<host>\[[^\]/]*\]|[^/:@\[\]]*)(?::(?P<port>[^/]*))?"
    r"(?:/(?P<name>.*))?",
    re.DOTALL,
)
_USER: Final = re.compile(r"[\w.+=@][\w.+=@-]*")
_HOST: Final = re.compile(r"[\w.][\w.-]*")
_PORT: Final = re.compile(r"0{0,4}[1-9][0-9]{0,4}")
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]+(?:%\w+)?")


@dataclass(frozen=True, slots=True)
class Remote:
    """A daemon `name` on `host`; `user` and `port` None = as ssh's configuration says."""

    host: str
    user: str | None = None
    port: int | None = None
    name: str = DEFAULT_NAME

    @property
    def login(self) -> str:
        """Who logs in where, as people write it."""
        return self.host if self.user is None else f"{self.user}@{self.host}"

    @property
    def where(self) -> str:
        """The whole as it can be typed again."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = "" if self.user is None else f"{self.user}@"
        port = "" if self.port is None else f":{self.port}"
        name = "" if self.name == DEFAULT_NAME else f"/{self.name}"
        return f"{SCHEME}{user}{host}{port}{name}"

    @property
    def by_hand(self) -> str:
        """The command that logs in there."""
        port = "" if self.port is None else f"-p {self.port} "
        return f"ssh {port}{self.login}"


def parse_remote(where: str) -> Remote:
    """The place that this means. Raises InspectError (exit 2) when it means none."""
    found = _WHERE.fullmatch(where)
    if found is None:
        raise _no_place(where)
    user, host, port, name = found.group("user", "host", "port", "name")
    bare = host.removeprefix("[").removesuffix("]")
    good = _ADDRESS if host.startswith("[") else _HOST
    if not good.fullmatch(bare) or (user is not None and not _USER.fullmatch(user)):
        raise _no_place(where)
    if port is not None and not (_PORT.fullmatch(port) and int(port) < 65536):
        raise InspectError(f"{where!r} has no port that can be", "Write ssh://HOST:PORT, 1-65535")
    remote = Remote(bare, user, None if port is None else int(port))
    _check_own(where, remote, name or "")
    return replace(remote, name=check_name(name or DEFAULT_NAME))


def _check_own(where: str, remote: Remote, name: str) -> None:
    """Raise InspectError for `USER/NAME` there: only one's own daemons tell where they are."""
    user, slash, rest = name.partition("/")
    if slash and _USER.fullmatch(user) and _USER.fullmatch(rest):
        raise InspectError(
            f"{where} is {user}'s daemon: over ssh only your own can be attached to",
            f"Attach there: {remote.by_hand.replace('ssh', 'ssh -t', 1)} llm-inspect attach {name}",
        )


def _no_place(where: str) -> InspectError:
    return InspectError(
        f"{where!r} is no place to attach to", "Write ssh://[user@]host[:port][/NAME]"
    )
