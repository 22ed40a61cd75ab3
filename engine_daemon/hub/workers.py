"""The engine side of the hub: the worker and tokens processes, and what they say.

Starts and restarts the children, brings sessions to the worker, logs what comes back. How messages
travel is `inner_socket`'s; what a command may do is decided in `control`; viewers are `hub`'s.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import zmq
from msgspec.structs import replace as replace_struct

from engine_daemon.config import DaemonOptions
from engine_daemon.hub.children import Child, end_all
from engine_daemon.hub.durability import keeping_on
from engine_daemon.hub.inner_socket import InnerSocket
from engine_daemon.hub.ranks import WORKER, Loss, Ranks
from engine_daemon.hub.reads import RowReads
from engine_daemon.hub.refusing import Rejected
from engine_daemon.hub.restarts import RESTARTS, Restarts
from engine_daemon.hub.seats import Seats
from engine_daemon.hub.sessions import SessionStore
from engine_daemon.hub.stacks import StackAsks, silence
from engine_daemon.hub.watchdog import TokensWatch, Watchdog, shown
from engine_daemon.hub.weights import as_loaded, compared
from engine_daemon.paths import Paths, with_name
from engine_daemon.protocol import worker as wire
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.state import EngineDetails, EngineState

TOKENS: Final = "engine_daemon.tokens"

_log = logging.getLogger(__name__)


class EngineSide:
    """Owns the children, their socket `inner`, and what is known of the engine.

    `changed` is called whenever `state` has something new, `tell` where everybody shall hear of it
    before it changes again; `fatal` is set when the first load failed and the daemon has nothing
    to stay for.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        paths: Paths,
        options: DaemonOptions,
        store: SessionStore,
        version: str,
        changed: Callable[[], None],
        tell: Callable[[], None],
    ) -> None:
        self._tell = tell
        self._paths = paths
        self._named = partial(with_name, name=paths.name)
        self._options = options
        self._store = store
        self._version = version
        self._changed = changed
        self.inner = InnerSocket(context, paths.engine_socket)
        self.fatal = False
        self.state = EngineState(
            word="starting", backend=options.engine.backend, model_name=options.engine.model
        )
        self._worker: Ranks | None = None
        self._routes: dict[int, bytes] = {}
        self._failed = False
        self._ever_ready = False
        self._model_dir: str | None = None
        self._tokens: Child | None = None
        self._restarts = Restarts(paths.engine_counter)
        self._killed_by = ""
        self._watchdog = Watchdog(options.stuck_s)
        self._tokens_watch = TokensWatch()
        self._stacks = StackAsks(self.inner.send, lambda rank: self._named(self._silence(rank)))
        self.reads = RowReads(self._send)
        self.seats = Seats(store, options.engine.max_context, self._send, changed)

    # Life of the children -------------------------------------------------------------------

    def start(self) -> None:
        """Start both children."""
        self._start_tokens()
        self._start_worker()

    def close(self) -> None:
        """End the children, at most `KILL_AFTER_S` later."""
        ranks = [] if self._worker is None else self._worker.children
        end_all([*ranks, *([] if self._tokens is None else [self._tokens])])
        self.inner.close()

    def _start_worker(self) -> None:
        self.seats.engine = self._restarts.number()
        self._failed = False
        self._routes.clear()
        self._killed_by = ""
        self._worker = Ranks(self._paths.engine_socket, self._options.engine.ranks)
        self._watchdog.started(self._worker.pids, time.monotonic())
        self._set(
            word="starting",
            engine=self.seats.engine,
            stage="",
            done=0,
            total=0,
            code="",
            message="",
            hint="",
            pid=self._worker.pids[0],
            weights=None,
            details=EngineDetails(pids=self._worker.pids),
        )

    def _start_tokens(self) -> None:
        self._tokens = Child(TOKENS, self._paths.engine_socket)
        _log.info("tokens process: pid %d", self._tokens.pid)
        self.seats.tokenizer = None

    def reap(self) -> None:
        """A child ended: say so in the logs, start it again where that makes sense."""
        if self._tokens is not None and self._tokens.ending() is not None:
            _log.warning("tokens process %s (pid %d)", self._tokens.ending(), self._tokens.pid)
            self._tokens.close()
            self._tokens = None
            self.seats.encoder.lost()
            if self._restarts.may(TOKENS):
                self._start_tokens()
            else:
                self._give_up("the tokens process keeps ending")
        if self._worker is not None and (loss := self._worker.loss()) is not None:
            pid = self._worker.pids[loss.rank]
            self._worker.close()
            self._worker = None
            self._worker_lost(loss, pid)

    def _worker_lost(self, loss: Loss, pid: int) -> None:
        if self._killed_by:
            loss = replace(loss, by=self._killed_by)
        _log.warning("%s (pid %d)", loss, pid)
        self.seats.worker_lost(loss)
        self.reads.lost()
        self._stacks.lost()
        self._watchdog.started([], 0.0)
        if self._failed:
            self.fatal = not self._ever_ready
        elif self._killed_by or self._restarts.may(WORKER):
            dead = EngineDetails(again=True)
            self._set(word="dead", pid=None, details=dead, code="engine_lost", message=str(loss))
            self._tell()
            self._start_worker()
            start, first = self.seats.engine, self.state.pid
            _log.info("the engine is started again: start %d, pid %s", start, first)
        else:
            self._give_up(f"{loss}, {RESTARTS} restarts did not help")

    def _give_up(self, message: str) -> None:
        """Nothing more is started: the daemon stays with its history, unless it never had any."""
        self._failed = True
        self.seats.encoder.fail("engine", message)
        self._set(
            word="dead",
            pid=None,
            details=EngineDetails(),
            code="engine_lost",
            message=message,
            hint="Look at `llm-inspect daemon logs`, then `llm-inspect daemon restart`",
        )
        if self._worker is not None:
            self._worker.kill()
        self.fatal = not self._ever_ready

    # Messages ---------------------------------------------------------------------------------

    def receive(self) -> None:
        """Take all that lies at the inner socket."""
        logged: dict[str, int] = {}
        for route, message in self.inner.received():
            with keeping_on(_log):
                self._heard(route, message, logged)
        for session, count in logged.items():
            self._send("worker", wire.Seen(session=session, next=count))

    def _heard(self, route: bytes, message: Message, logged: dict[str, int]) -> None:
        match message:
            case wire.EventOut(session=session, event=packed):
                logged[session] = self.seats.log_event(session, packed)
            case wire.ChildReady():
                self._child_ready(route, message)
            case wire.Progress(stage=stage, done=done, total=total):
                self._set(word="loading", stage=stage, done=done, total=total)
            case wire.Located(model_dir=model_dir):
                self._model_dir = model_dir
                self._load_tokenizer()
            case wire.EngineReady():
                self._engine_ready(message)
            case wire.LoadFailed(code=code, message=text, hint=hint):
                self._load_failed(route, code, text, hint)
            case wire.TokenizerReady():
                self.seats.tokenizer = message
                self._send("worker", wire.Pieces(path=str(self._paths.pieces)))
                self.seats.encoder.resume()
                self.seats.advance_all()
            case wire.Encoded():
                self.seats.encoder.encoded(message)
                self.seats.advance_all()
            case wire.Resolved():
                self.seats.encoder.resolved(message)
                self.seats.advance_all()
            case wire.Stacks(ask=ask, text=text):
                self._stacks.heard(route, ask, text)
            case wire.RowAnswer():
                self.reads.answered(message)
            case wire.WeightsSummed():
                check = compared(self.state, message)
                if check is not None:
                    self._set(weights=check)
            case wire.Alive():
                self._watchdog.heard(message, time.monotonic())
                self._stacks.routes[message.rank] = route
            case _:
                _log.error("unexpected message %s", type(message).__name__)

    def _child_ready(self, route: bytes, ready: wire.ChildReady) -> None:
        child = self._worker if ready.role == "worker" else self._tokens
        if child is None or child.pids[ready.rank : ready.rank + 1] != [ready.pid]:
            _log.warning("a stray %s process %d", ready.role, ready.pid)
            return
        if ready.version != self._version:
            self._failed = True
            self._set(
                word="dead",
                code="version",
                message=f"installed is {ready.version}, this daemon runs {self._version}",
                hint="Restart it: llm-inspect daemon restart",
            )
            child.kill()
            return
        if ready.role == "worker":
            self._routes[ready.rank] = route
            if ready.rank:
                return
            self._set(word="loading", stage="look up")
            self._send("worker", wire.Load(options=self._options.engine))
        else:
            self.seats.encoder.route = route
            self._load_tokenizer()

    def _load_tokenizer(self) -> None:
        """Once both the model's place and the tokens process are known."""
        if self._model_dir is None or self.seats.encoder.route is None:
            return
        if self.seats.tokenizer is not None:
            self._send("worker", wire.Pieces(path=str(self._paths.pieces)))
            return
        self._send(
            "tokens",
            wire.LoadTokenizer(model_dir=self._model_dir, pieces_path=str(self._paths.pieces)),
        )

    def _engine_ready(self, ready: wire.EngineReady) -> None:
        self.seats.started, self._ever_ready = ready, True
        _log.info("ready: %s on %s", ready.model.name, ready.model.device)
        with contextlib.suppress(OSError):
            self._paths.before.unlink()  # these options work
        self._set(
            word="ready",
            backend=ready.backend,
            synthetic=ready.synthetic,
            model=ready.model,
            model_name=ready.model.name,
            stage="",
            done=0,
            total=0,
            weights=as_loaded(ready.model.weights_checksum),
            details=replace_struct(self.state.details, notes=ready.notes),
        )
        self.seats.advance_all()

    def _load_failed(self, route: bytes, code: str, text: str, hint: str) -> None:
        _log.error("load failed: %s (%s)", text, hint)
        self._failed = True
        self._set(word="dead", code=code, message=text, hint=hint)
        if route != self._routes.get(0) and self._worker is not None:
            # The tokens process could not read the tokenizer: no session can ever start.
            self._worker.kill()

    def _set(self, **fields: object) -> None:
        self.state = state = replace_struct(self.state, **fields)
        hint = self._named(state.hint or "Wait for it: llm-inspect daemon status")
        message = state.message or f"the engine is {state.word}"
        self.seats.why_not = Rejected("no_engine", message, hint)
        self._changed()

    def _send(self, role: str, message: Message) -> bool:
        route = self._routes.get(0) if role == "worker" else self.seats.encoder.route
        return route is not None and self.inner.send(route, message)

    def stacks(self, answer: Callable[[str | None], None]) -> None:
        """Ask all ranks of the worker for their stacks; None when it is not there."""
        if self._worker is not None and not self._stacks.routes:
            answer("does not answer yet\n")
        else:
            self._stacks.ask(answer)

    def _silence(self, rank: int) -> str:
        """Why a rank does not answer."""
        return "has ended" if self._worker is None else silence(self._worker.children[rank])

    def kill(self, who: str) -> None:
        """End the worker because somebody asked for it, and start it again. Rejected when there is
        none."""
        if self._worker is None:
            raise self.seats.why_not
        self._killed_by = who
        self._worker.kill()

    @property
    def shown(self) -> EngineState:
        """The state, with what else is the matter with it; its hint names the daemon."""
        told = self._tokens_watch.shown(shown(self.state, self._watchdog.stuck))
        return replace_struct(told, hint=self._named(told.hint))

    def check_weights(self) -> None:
        """Have the parameters summed again; Rejected when that cannot be."""
        known = self.state.weights
        if self.seats.started is None:
            raise self.seats.why_not
        if known is None:
            raise Rejected("no_engine", "this engine has no weights in memory to check")
        if not known.running and self._send("worker", wire.SumWeights()):
            self._set(weights=replace_struct(known, running=True))

    def check_patience(self, now: float) -> None:
        """Kill a tokens process that sits in one prompt for too long; tell the stacks there are."""
        self._stacks.check(now)
        tokens, encoder = self._tokens, self.seats.encoder
        loads = None if tokens is None or encoder.ready else tokens.pid
        if self._watchdog.check(now) | self._tokens_watch.check(loads, now):
            self._tell_stuck()
        if tokens is not None and encoder.overdue(now, tokens.pid):
            _log.warning("tokens process: a prompt took too long")
            tokens.kill()

    def _tell_stuck(self) -> None:
        for line in (self._watchdog.news(), self._tokens_watch.news()):
            if self.state.word != "dead" and line is not None:
                _log.warning("%s", line)
        self._changed()

    @property
    def loading(self) -> bool:
        """The model is on its way."""
        return self.state.word in ("starting", "loading")

    def any_running(self) -> bool:
        """A session runs, waits for its first distribution, or has measurements to come. One whose
        stop could not be written stands all the same."""
        return any(
            s.open and (s.columns.status in ("running", "waiting") or s.columns.measuring)
            for s in self._store
            if not s.stalled
        )

    def stop_running(self, message: str) -> None:
        """The daemon leaves: every running session stands where its log ends."""
        for session in self._store:
            if session.open and session.columns.status == "running":
                with keeping_on(_log):
                    self.seats.log_stop(session, "pause", message)
