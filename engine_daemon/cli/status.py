"""`daemon status`: the daemon, its engine, its sessions and who is attached, in lines or as JSON.

Knows the state and its words; changes nothing.
"""

import json
import time

import msgspec

from engine_daemon.cli.listing import span
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.cli.target import ASKING, running_target, state_of
from engine_daemon.cli.why import STOPS, WISHED
from engine_daemon.launch import STOPPING
from engine_daemon.lookup import read_connection
from engine_daemon.protocol.codec import VERSION
from engine_daemon.protocol.state import EngineState, SessionInfo, State, ViewerInfo, WeightsCheck
from engine_daemon.stages import stage_text


def asks(viewer: ViewerInfo) -> bool:
    """It is a client like this one, here for a moment."""
    return viewer.client.split(" ")[0] in (ASKING, STOPPING)


def main(given: Given) -> int:
    """`daemon status`."""
    target = running_target(given)
    state = state_of(target)
    viewers = [viewer for viewer in state.viewers if not asks(viewer)]
    state = msgspec.structs.replace(state, viewers=viewers)
    connection = read_connection(target.paths)
    if given.json:
        running = {key: connection[key] for key in ("name", "pid", "version", "started")}
        running["socket"] = str(connection["viewers"]).removeprefix("ipc://")
        running["protocol"] = VERSION
        tell(json.dumps({**running, **_object(state)}))
        return 0
    up = time.time() - float(connection["started"])
    tell(f"daemon {target.paths.name}: pid {connection['pid']}, up {span(up)}, {_idle(state)}")
    tell(f"engine: {engine_text(state.engine)}")
    for note in state.engine.details.notes:
        tell(f"note: {note}")
    if state.engine.weights is not None:
        tell(f"weights: {_weights_text(state.engine.weights)}")
    for session in state.sessions:
        tell(f"session {session.session}: {session_text(session)}")
    for viewer in viewers:
        tell(f"viewer {viewer_text(viewer, alone=len(viewers) == 1)}")
    return 0


def session_text(session: SessionInfo) -> str:
    """Where it stands, and why where that was nobody's wish."""
    text = f"{session.status} at {session.place.step}"
    if session.trouble:
        text += f" ({session.trouble}; free some space, then go on)"
    elif session.status == "paused" and session.stop not in ("", *WISHED):
        text += f" by {STOPS.get(session.stop, session.stop)}"
    return f"{text}{f', lease {session.holder}' if session.holder else ''}, {session.title}"


def viewer_text(viewer: ViewerInfo, *, alone: bool) -> str:
    """Who it is and what it is at; which of several it is where it is not alone."""
    parts = [viewer.client, viewer.role]
    if viewer.uid is not None:
        parts.append(f"uid {viewer.uid}")
    if viewer.sessions:
        parts.append(f"follows {' '.join(viewer.sessions)}")
    if viewer.lag:
        parts.append(f"{viewer.lag} event{'s' * (viewer.lag != 1)} behind")
    if viewer.holds:
        parts.append(f"lease {' '.join(viewer.holds)}")
    which = "" if alone else f" {viewer.sign}"
    return f"{viewer.who}{which}: {', '.join(parts)}"


def _object(value: msgspec.Struct) -> dict[str, object]:
    """A struct for JSON: every field, also those the wire leaves out; no internal ids."""
    fields = msgspec.structs.asdict(value)
    return {name: _plain(field) for name, field in fields.items() if not isinstance(field, bytes)}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _object(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _idle(state: State) -> str:
    if state.idle_exit_s is None:
        return "stays until it is stopped"
    return f"leaves after {span(state.idle_exit_s)} without use"


def engine_text(engine: EngineState) -> str:
    """The engine in one line."""
    model = engine.model
    if engine.word in ("ready", "busy") and model is not None:
        synthetic = " (synthetic)" if engine.synthetic else ""
        ranks = f" x {model.ranks} ranks" if model.ranks > 1 else ""
        return (
            f"{engine.word}, {model.name}{synthetic}, {model.dtype} on {model.device}{ranks}, "
            f"loaded in {model.load_s:.1f} s, engine path {model.engine_path}"
        )
    stage = stage_text(engine.stage) if engine.stage else ""
    words = [engine.word, stage, engine.model_name, engine.message]
    return ", ".join(word for word in words if word)


def _weights_text(check: WeightsCheck) -> str:
    """What the last look at the parameters in memory found."""
    when = time.strftime("%H:%M:%S", time.localtime(check.wall_ns / 1e9))
    word = "as they were loaded" if check.same else "CHANGED since they were loaded"
    return f"{word}, checked at {when}, {check.checksum[:16]}"
