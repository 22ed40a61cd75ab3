"""Events about stop conditions and watched tokens; part of the table in `events`."""

import msgspec

from engine_daemon.protocol.event import Event
from engine_daemon.protocol.values import TokenIds


class ConditionAdded(Event, frozen=True, kw_only=True, tag="ConditionAdded"):
    """A stop condition is in force from here on. `literals`: the tokens its texts stand for."""

    number: int
    source: str
    literals: list[TokenIds] = msgspec.field(default_factory=list)


class ConditionRejected(Event, frozen=True, kw_only=True, tag="ConditionRejected"):
    """A condition that was asked for cannot be used with this model's tokens."""

    source: str
    code: str
    message: str
    hint: str = ""


class ConditionRemoved(Event, frozen=True, kw_only=True, tag="ConditionRemoved"):
    """It stops nothing any more; its number is not used again."""

    number: int


class ConditionDisabled(Event, frozen=True, kw_only=True, tag="ConditionDisabled"):
    """The worker gave it up; `message` says why (a regular expression over its time limit)."""

    number: int
    message: str


class WatchSet(Event, frozen=True, kw_only=True, tag="WatchSet"):
    """The watched tokens from the next distribution on; replaces the list before it."""

    tokens: list[TokenIds]
