"""`python -m tests.tui.hostile_screen plain|hostile SCENE`: the screen on such tokens."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from textual.pilot import Pilot

from engine_daemon.errors import InspectError
from engine_daemon.protocol.condition_events import ConditionAdded
from engine_daemon.protocol.events import Commanded, Noted
from engine_daemon.protocol.state import Place, SessionInfo, State
from tests.tui.recordings import replay_app, write
from tests.tui.source import FakeSource
from tests.tui.story import MODEL, SESSION, Row, Story, state
from tui.app import InspectApp

KEYS = {
    "main": ["tab", "down", "u", "S", "S", "g", "G", "tab", "up", "tab", "M", "tab", "z", "z"],
    "dialogs": ["question_mark", "escape", "p", "escape", "t", "escape", "ctrl+n"],
    "people": [
        *("v", "escape", "apostrophe", "down", "escape", "B", "down", "escape", "colon", "escape"),
        *("i", "escape", "b", "escape", "m", "escape", "L", "escape", "w", "escape", "R"),
    ],
    "replay": ["G", "S", "left_square_bracket", "g", "s", "apostrophe", "escape", "B", "escape"],
    "small": ["S", "s"],
}


def pieces(kind: str) -> list[bytes]:
    """All bytes alone, the named sequences whole and split; or as many plain words."""
    from tests.tui.test_hostile import SPLIT
    from tests.tui.test_text import HOSTILE

    bad = [*(bytes([b]) for b in range(256)), *HOSTILE, *SPLIT]
    return bad if kind == "hostile" else [b" word"] * len(bad)


def story(kind: str) -> Story:
    """Each piece as prompt token, as chosen token and as candidate."""
    tokens = pieces(kind)
    told = Story([(k, piece) for k, piece in enumerate(tokens)])
    told.predict().stop().command("run_to", None)
    for k, piece in enumerate(tokens):
        rows: list[Row] = [(k, piece, 0.3)]
        rows += [(1000 + j, other, 0.01) for j, other in enumerate(tokens[k : k + 15])]
        told.predict(rows).pick(k, piece, 0.3, special=k % 7 == 0)
    told.predict([(j, other, 0.002) for j, other in enumerate(tokens[-40:])]).stop("pause")
    base: dict[str, Any] = {"t_ns": 1, "wall_ns": 1, "step": told.step}
    markup = pieces("hostile").index(b"[@click=app.quit]x")
    for number, piece in enumerate([*tokens[:300:12], tokens[markup]], start=1):
        text = piece.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()
        told.add(
            Noted(who=text, text=text, **base),
            Commanded(op="note", who=text, text=text, **base),
            ConditionAdded(number=number, source=text, **base),
        )
    return told


def daemon(kind: str) -> State:
    """Names that are no better."""
    name = "\x1b]0;x\x07[/b][@click=app.quit]" if kind == "hostile" else "model"
    known = state()
    info = SessionInfo(
        session=SESSION,
        title=name,
        status="paused",
        place=Place(kind="pending", step=3, reason=name),
        resident=True,
        head=3,
        created_ns=1,
    )
    model = msgspec.structs.replace(MODEL, name=name, dtype=name[:4], device=name[:5])
    engine = msgspec.structs.replace(known.engine, model=model, model_name=name)
    people = [
        msgspec.structs.replace(one, who=name, client=name, holds=[SESSION])
        for one in known.viewers
    ]
    return State(engine=engine, sessions=[info], viewers=people)


class Playing(FakeSource):
    """A source whose errors are hostile too."""

    bad = ""


def play_recording(kind: str) -> int:
    """The same tokens from a file: the screen of a replay."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.lir"
        write(path, story(kind).log)
        app = replay_app(path)

        async def play(pilot: object) -> None:
            assert isinstance(pilot, Pilot)
            while app.view.session is None:
                await pilot.pause(0.02)
            for key in KEYS["replay"]:
                await pilot.press(key)
                await pilot.pause(0.05)
            app.exit()

        app.run(auto_pilot=play)
    return 0


def main(kind: str, scene: str) -> int:
    """Play the keys and leave."""
    if scene == "replay":
        return play_recording(kind)
    source = Playing(story(kind), daemon(kind))
    bad = "".join(piece.decode("latin-1") for piece in pieces(kind)[:300])
    source.refuse = InspectError(bad, bad)
    app = InspectApp(lambda: source)

    async def play(pilot: object) -> None:
        assert isinstance(pilot, Pilot)
        while app.view.columns.next < len(source.story.log):
            await pilot.pause(0.02)
        for key in KEYS[scene]:
            await pilot.press(key)
            await pilot.pause(0.05)
        if scene == "dialogs":
            from tui.widgets.safe_area import SafeTextArea

            area = app.screen.query_one("#prompt-text", SafeTextArea)
            area.text = bad
            await pilot.pause(0.1)
            await pilot.press("escape")
        app.main.say(source.refuse or "")
        await pilot.press("s")
        await pilot.pause(0.3)
        app.exit()

    app.run(auto_pilot=play)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2]))
