"""What every command is made of. Knows no kind of them."""

import msgspec

from engine_daemon.protocol.values import Record


class At(Record, frozen=True, kw_only=True):
    """Guard: the place the sender believed the session to be at."""

    branch: int
    step: int


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", omit_defaults=True):
    """Base of what may be asked of a session or the daemon."""
