"""Accounts of this machine by the names that `--share` takes.

Knows the system's tables of users and groups only.
"""

import grp
import pwd

from engine_daemon.errors import InspectError


def uids_of(option: str, names: str) -> set[int]:
    """`alice,@lab` as uids. InspectError (exit 2) for a name nobody has; `option` is told in it."""
    found: set[int] = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        try:
            found |= _members(name[1:]) if name[0] == "@" else {pwd.getpwnam(name).pw_uid}
        except KeyError:
            kind = "group" if name[0] == "@" else "user"
            raise InspectError(
                f"{option}: there is no {kind} {name.lstrip('@')!r} on this machine",
                "Name accounts, or a group as @GROUP, separated by commas",
            ) from None
    return found


def check_accounts(share: str, share_control: str) -> None:
    """InspectError (exit 2) where one of the two options names nobody."""
    uids_of("--share", share)
    uids_of("--share-control", share_control)


def _members(group: str) -> set[int]:
    """Accounts of a group, by their entry in it or as their own group."""
    entry = grp.getgrnam(group)
    primary = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == entry.gr_gid}
    return primary | {pwd.getpwnam(name).pw_uid for name in entry.gr_mem}
