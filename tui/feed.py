"""From updates to pixels: folds everything that arrived, then paints once.

Paints on arrival when the last paint is a frame ago, else when it is; where events crowd, frames
are made longer so that a flood leaves the core to others. Knows source and view; no widgets
(whoever owns it passes a function that paints).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.commands import Batch, Lost, Removed, Snapshot, StateMessage
from engine_daemon.protocol.events import UnknownEvent
from engine_daemon.protocol.reads import AskEvents
from engine_daemon.recording.columns import Columns, GapError
from tui.source import EventSource, Skipped
from tui.view import View

if TYPE_CHECKING:
    from engine_daemon.client import Update

FRAME_S: Final = 0.033
_LONGEST_FRAME_S: Final = 0.125
_CROWD: Final = 16
"""Events in a frame that nobody tells apart any more: only then may a frame last longer."""
_SHARE: Final = 0.18
"""Of one core, that a crowd of events may take: a frame lasts as long as its work asks for."""
_AT_ONCE: Final = 256
"""Events folded before the clock is looked at."""
_MANY: Final = 32
"""From so many on, folding them together pays."""
_AGAIN_S: Final = 0.25
_WORTH_EVENTS: Final = 2000
"""From so many on, a session folded is less to send than its events."""
_SLICE_S: Final = 0.004
"""How long folding may take before keys get a turn."""


def _made_s(packed: bytes) -> float:
    """When an event was made, by the monotonic clock of where that was."""
    try:
        event = unpack_event(packed)
    except WireError:
        return 0.0
    return 0.0 if isinstance(event, UnknownEvent) else event.t_ns / 1e9


class Feed:
    """Keeps the view up to date with a source.

    Args:
        paint: draws what is visible; called at most every FRAME_S.
        after_events: called after each fold, for what follows from events.
    """

    def __init__(
        self,
        source: EventSource,
        view: View,
        paint: Callable[[], None],
        after_events: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._view = view
        self._paint = paint
        self._after = after_events
        self._sessions: dict[str, Columns] = {}
        self._painted = 0.0
        self._cpu = 0.0
        self._folded = 0
        self._frame = FRAME_S
        self._timer: asyncio.TimerHandle | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._gone: set[int] = set()

    def follow(self, session: str, known: Columns | None = None) -> None:
        """Show this session from here on; `known`: what of it is folded already."""
        view = self._view
        if view.session == session:
            return
        if view.session is not None:
            self._source.unfollow(view.session)
        columns = self._sessions.setdefault(session, known or Columns())
        self._gone.clear()
        view.show(session, columns)
        self._source.follow(session, columns.next, snapshot=columns.next == 0)
        self.changed()

    async def run(self) -> None:
        """Until the source ends."""
        try:
            async for updates in self._source.updates():
                await self._fold(updates)
                self.changed()
                await self._after()
        finally:
            self.stop()

    def stop(self) -> None:
        """No paint and no read after this."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fetching is not None:
            self._fetching.cancel()

    async def _fold(self, updates: "Sequence[Update | Skipped]") -> None:
        from engine_daemon.client import LinkLost, LinkUp  # loaded by then: see tui.source

        began = time.monotonic()
        for update in updates:
            match update:
                case StateMessage():
                    self._view.state = update.state
                case Batch():
                    if update.session == self._view.session:
                        self._view.behind.heard(update.head, time.monotonic())
                    for at in range(0, len(update.ev), _AT_ONCE):
                        self._extend(update.session, update.ev[at : at + _AT_ONCE])
                        began = await self._give_way(began)
                case Skipped(session=session, to=to):
                    if session in self._sessions:
                        self._sessions[session].skip(to)
                case Snapshot():
                    self._begin_late(update)
                case Lost(session=session, by=by):
                    if session == self._view.session:
                        self._view.taken_by.append(by)
                case Removed(session=session, by=by):
                    if session == self._view.session:
                        self._view.removed_by.append(by)
                case LinkLost():
                    self._view.link, self._view.link_text = False, update.reason
                    self._view.link_hint = update.hint
                case LinkUp():
                    self._view.link, self._view.link_text = True, ""
                    self._view.link_hint = ""
                    self._gone.clear()
            began = await self._give_way(began)

    async def _give_way(self, began: float) -> float:
        """Let keys have their turn when folding took long; gives when it went on."""
        if time.monotonic() - began <= _SLICE_S:
            return began
        self.changed()
        await asyncio.sleep(0)
        return time.monotonic()

    def _begin_late(self, snapshot: Snapshot) -> None:
        """A long session, folded by the daemon; one that cannot be read is had event by event."""
        try:
            columns = Columns.of(snapshot.columns)
        except WireError:
            self._source.follow(snapshot.session)
            return
        self._sessions[snapshot.session] = columns
        if snapshot.session == self._view.session:
            self._view.show(snapshot.session, columns)

    def _extend(self, session: str, events: list[tuple[int, bytes]]) -> None:
        columns = self._sessions.get(session)
        if columns is None:
            return
        events = [(seq, packed) for seq, packed in events if seq >= columns.next]
        self._folded += len(events)
        try:
            self._take(columns, events)
        except GapError as gap:
            self._source.follow(session, gap.expected)
            return
        if session == self._view.session:
            self._view.keep(events)
            if events:
                self._view.behind.took(_made_s(events[-1][1]), time.monotonic())

    def _take(self, columns: Columns, events: list[tuple[int, bytes]]) -> None:
        """Fold events in; raises GapError when one is not the next."""
        first = columns.next
        if len(events) >= _MANY and [seq for seq, _ in events] == [
            *range(first, first + len(events))
        ]:
            from engine_daemon.recording.bulk import (
                fold_run,
            )  # when there are many for the first time

            if not fold_run(columns, first, [packed for _, packed in events]):
                self._view.newer_daemon = True
            return
        for seq, packed in events:
            try:
                if isinstance(columns.apply(seq, packed), UnknownEvent):
                    self._view.newer_daemon = True
            except WireError:
                columns.skip(seq + 1)

    # Painting ---------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something looks different: paint now, or as soon as a frame has passed."""
        if self._timer is not None:
            return
        wait = self._painted + self._frame - time.monotonic()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(wait, 0.0), self._paint_now)

    def _paint_now(self) -> None:
        self._timer = None
        self._look_behind()
        cpu = time.thread_time()
        work, self._cpu = cpu - self._cpu, cpu
        crowded, self._folded = self._folded > _CROWD, 0
        self._frame = min(max(FRAME_S, work / _SHARE), _LONGEST_FRAME_S) if crowded else FRAME_S
        self._painted = time.monotonic()
        self._paint()
        self.fetch_wanted()

    def _look_behind(self) -> None:
        """How far this is behind by what the source knows by now; looked at again while it is."""
        view, now = self._view, time.monotonic()
        if view.replay is not None:
            return
        for session in self._source.state.sessions:
            if session.session == view.session:
                view.behind.heard(session.head, now)
        view.behind.look(view.columns.next, now)
        if view.behind.events or view.behind.shown:
            asyncio.get_running_loop().call_later(_AGAIN_S, self.changed)

    def jump(self) -> None:
        """To the head at once, where the way there is long: the session folded instead of each
        event on the way. The steps between are there all the same."""
        view = self._view
        if view.session is not None and view.behind.events >= _WORTH_EVENTS:
            self._source.follow(view.session, snapshot=True)

    def fetch_wanted(self) -> None:
        """Ask for the events of the step that is looked at, unless that is under way."""
        self._view.detail(self._view.at)
        wanted = [seq for seq in self._view.wanted if seq not in self._gone]
        if wanted and self._view.link and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(wanted))

    async def _fetch(self, seqs: list[int]) -> None:
        session = self._view.session
        try:
            answer = await self._source.ask(AskEvents(seqs=seqs), session)
        except InspectError:
            self._gone.update(seqs)
            return
        if session == self._view.session:
            events = answer.ev or []
            self._gone.update(set(seqs) - {seq for seq, _ in events})
            self._view.keep(events)
            self._view.wanted = []
            self.changed()
