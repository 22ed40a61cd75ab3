"""What every event of a log is made of. Knows no kind of them."""

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", omit_defaults=True):
    """Base of every event. `t_ns` monotonic, `wall_ns` Unix time; `cause` the command's id."""

    t_ns: int
    wall_ns: int
    branch: int = 0
    step: int = 0
    cause: bytes | None = None


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a kind this version does not know: kept and skipped, never fatal."""

    kind: str
