"""The hub's loop: one thread, one poll, every viewer and every child.

Receives, hands over to `control`, `workers` and `fanout`, and sends. Keeps no data of its own that
outlives a viewer: sessions are their logs.
"""

import logging
import math
import os
import signal
import time
from typing import Final

import zmq
from msgspec.structs import replace

from engine_daemon import __version__
from engine_daemon.config import DaemonOptions
from engine_daemon.hub.durability import Syncer
from engine_daemon.hub.front import Front
from engine_daemon.hub.home import Home
from engine_daemon.hub.idle import give_back
from engine_daemon.hub.log_file import LogFile
from engine_daemon.hub.sessions import SessionStore
from engine_daemon.hub.sharing import Sharing
from engine_daemon.hub.spool import trim
from engine_daemon.hub.viewers import Viewer
from engine_daemon.hub.workers import EngineSide
from engine_daemon.paths import Paths
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.state import State

TICK_S: Final = 0.5
STATE_PERIOD_S: Final = 0.1
GROWTH_PERIOD_S: Final = 1.0
"""When nothing changed but how far a session runs: who follows it knows that from its events."""
TOLD_S: Final = 0.3
"""A viewer that is attached has heard of a failed load after so long."""
UNHEARD_S: Final = 5.0
"""A failed load waits so long for whoever started the daemon to ask."""
HERALDS: Final = ("start", "ask")
"""Clients that wait for the model or look at the state, before the one that they came for."""
ON_ITS_WAY_S: Final = 3.0
"""How long that one may take to attach."""
KEEP_CLOSED_S: Final = 60.0
"""A closed session that nobody follows stays readable for so long."""

_log = logging.getLogger(__name__)


class Hub:
    """Everything that lives as long as the daemon. `run` returns the exit code.

    `signal` is set by a handler, at any moment, and by nobody else: no turn of the loop undoes it.
    """

    def __init__(self, paths: Paths, options: DaemonOptions, home: Home, sharing: Sharing) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._paths = paths
        self._options = options
        self._closed: set[str] | None = None
        self._home = home
        self.epoch = os.urandom(8)
        self._syncer = Syncer()
        self._store = SessionStore(paths, self.epoch, f"llm-inspect {__version__}", self._syncer)
        self._engine = EngineSide(
            self._context,
            paths,
            options,
            self._store,
            __version__,
            self._state_changed,
            self._push_now,
        )
        self._front = Front(
            self._context,
            paths,
            self.epoch,
            self._store,
            self._engine,
            self._state,
            self._state_changed,
            sharing,
        )
        self._log_file = LogFile(paths)
        self._state_dirty = False
        self._state_seen = self._state_sent = 0.0
        self._told: State | None = None
        self._idle_since = time.monotonic()
        self._routes: set[bytes] = set()
        self._here: dict[bytes, str] = {}
        self._had_viewer = False
        self._had_guest = False
        self._failed_at: float | None = None
        self._heard = False
        self.signal: signal.Signals | None = None
        self._leaving = False
        self._exit_code = 0

    # The loop -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up the old sessions and start the children."""
        self._store.reopen_all()
        self._engine.start()

    def run(self, wake_fd: int) -> int:
        """Serve until told to leave. `wake_fd` becomes readable when a signal came."""
        poller = zmq.Poller()
        for source in (
            self._front.socket,
            self._front.room.monitor,
            self._engine.inner.socket,
            wake_fd,
            self._syncer.wake_fd,
        ):
            poller.register(source, zmq.POLLIN)
        next_tick = 0.0
        while not self._leaving and self.signal is None:
            now = time.monotonic()
            ready = dict(poller.poll(_milliseconds(self._next_look(next_tick) - now)))
            if wake_fd in ready:
                os.read(wake_fd, 4096)
                self._engine.reap()
            if self._syncer.wake_fd in ready:
                self._syncer.drain()
            if self._front.room.monitor in ready:
                self._front.room.look()
            # Commands before data: a pause is never behind a flood of events.
            self._front.receive()
            self._leaving = self._front.stop_asked
            self._note_viewers()
            if self._engine.inner.socket in ready:
                self._engine.receive()
            now = time.monotonic()
            self._front.leases.expire(now)
            self._engine.seats.timeouts.check(now)
            if now >= next_tick:
                next_tick = now + TICK_S
                self._tick(now)
            self._front.flush(now)
            self._push_state(now)
            self._leave_if_failed(now)
        return self._exit_code

    def _next_look(self, next_tick: float) -> float:
        """When the loop must turn even if nothing comes in."""
        looks = [next_tick]
        if self._front.next_look is not None:
            looks.append(self._front.next_look)
        deadline = self._engine.seats.timeouts.next
        if deadline is not None:
            looks.append(deadline)
        if self._state_dirty:
            looks.append(self._state_seen + STATE_PERIOD_S)
        return min(looks)

    def close(self) -> None:
        """End the children and every log."""
        now = time.monotonic()
        self._engine.stop_running("the daemon was stopped")
        self._front.flush(now, at_once=True)
        self._engine.close()
        self._store.close_all("daemon", now)
        self._syncer.close()
        self._front.close()
        self._context.term()

    def _tick(self, now: float) -> None:
        if self._home.vanished(now):
            self._come_back()
        for session in self._store:
            if session.stalled and session.settle():
                self._state_changed()
        self._engine.check_patience(now)
        self._log_file.check()
        self._front.probe(now)
        followed = self._front.followed()
        if give_back(self._store, self._engine.seats, followed, now, self._options.idle_cache_s):
            self._state_changed()
        self._store.forget_closed(followed, now, KEEP_CLOSED_S)
        self._keep_within()
        self._idle_exit(now)

    def _keep_within(self) -> None:
        """Once at the start, and whenever a session was closed."""
        closed = {session.id for session in self._store if not session.open}
        if self._closed is None or closed - self._closed:
            in_use = {session.id for session in self._store if session.open}
            trim(self._paths.recordings, self._options.spool_bytes, in_use, closed)
        self._closed = closed

    def _come_back(self) -> None:
        """The runtime directory was cleaned away: whoever is attached stays, others can again."""
        if not self._home.come_back():
            self._leaving = True
            return
        for bind in (self._front.bind, self._engine.inner.bind):
            bind()
        self._home.announce_again()

    def _note_viewers(self) -> None:
        viewers = self._front.viewers
        if viewers.keys() == self._routes:  # each turn asks, and seldom is there another one
            return
        self._routes = set(viewers)
        guests = filter(_is_guest, viewers.values())
        self._log_viewers({one.id: f"{one.who} ({one.client})" for one in guests})
        self._had_viewer = self._had_viewer or bool(viewers)
        self._had_guest = self._had_guest or bool(self._here)

    def _log_viewers(self, here: dict[bytes, str]) -> None:
        for one in here.keys() - self._here.keys():
            _log.info("attached: %a", here[one])
        for one in self._here.keys() - here.keys():
            _log.info("left: %a", self._here[one])
        self._here = here

    def _idle_exit(self, now: float) -> None:
        busy = bool(self._front.viewers) or self._engine.any_running() or self._engine.loading
        limit = self._options.idle_exit_s
        if busy:
            self._idle_since = now
        elif limit is not None and now - self._idle_since >= max(limit, 0.0):
            # `--idle-exit 0` waits for the viewer that it was started for.
            if limit == 0 and not self._had_viewer:
                return
            if limit == 0 and not self._had_guest and now - self._idle_since < ON_ITS_WAY_S:
                return
            _log.info("idle for %.0f s: leaving", now - self._idle_since)
            self._leaving = True

    def _leave_if_failed(self, now: float) -> None:
        """The first load failed: everybody who waits is told, then the daemon ends with 3."""
        if not self._engine.fatal or self._leaving:
            return
        if self._failed_at is None:
            self._failed_at, self._state_dirty = now, True
        self._heard = self._heard or bool(self._front.viewers)
        told = self._heard and now - self._failed_at > TOLD_S
        if told or now - self._failed_at > UNHEARD_S:
            self._leaving, self._exit_code = True, 3

    # State ------------------------------------------------------------------------------------

    def _state_changed(self) -> None:
        self._state_dirty = True

    def _push_state(self, now: float) -> None:
        if not self._state_dirty or now < self._state_seen + STATE_PERIOD_S:
            return
        self._state_seen = now
        state = self._state()
        if now >= self._state_sent + GROWTH_PERIOD_S or _settled(state) != self._told:
            self._push(state)

    def _push_now(self) -> None:
        self._push(self._state())

    def _push(self, state: State) -> None:
        self._state_dirty, self._state_sent = False, time.monotonic()
        self._told = _settled(state)
        self._front.push(cmd.StateMessage(state=state))

    def _state(self) -> State:
        sessions = [s for s in self._store if s.open]
        opened = {s.id for s in sessions}
        heads = {s.id: s.log.head for s in self._store}  # who looks at a closed one still does
        engine = self._engine.shown
        if engine.word == "ready" and self._engine.any_running():
            engine = replace(engine, word="busy")
        seats, leases, now = self._engine.seats, self._front.leases, time.monotonic()
        return State(
            engine=engine,
            sessions=[s.info(seats.other_model(s), leases.of(s.id)) for s in sessions],
            viewers=[
                viewer.info(heads, [s for s in leases.held_by(viewer.id) if s in opened], now)
                for viewer in self._front.viewers.values()
            ],
            idle_exit_s=self._options.idle_exit_s,
        )


def _is_guest(viewer: Viewer) -> bool:
    return viewer.client.split(" ")[0] not in HERALDS


def _settled(state: State) -> State:
    """The state without what grows as sessions run: where they are, who is how far behind."""
    sessions = [
        replace(session, head=0, place=replace(session.place, step=0, done=0))
        if session.status == "running"
        else session
        for session in state.sessions
    ]
    viewers = [replace(viewer, lag=0) for viewer in state.viewers]
    return replace(state, sessions=sessions, viewers=viewers)


def _milliseconds(seconds: float) -> int:
    return max(0, math.ceil(seconds * 1000))
