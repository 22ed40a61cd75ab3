"""`python -m tests.tui.hostile_screen plain|hostile SCENE`: the screen on such tokens."""

import sys

from engine_daemon.errors import InspectError
from engine_daemon.protocol.state import Place, SessionInfo, State
from tests.tui.source import FakeSource
from tests.tui.story import MODEL, SESSION, Row, Story, state
from tui.app import InspectApp

KEYS = {
    "main": ["tab", "down", "u", "S", "S", "g", "G", "tab", "up", "tab", "M", "tab", "z", "z"],
    "dialogs": ["question_mark", "escape", "p", "escape", "t", "escape", "ctrl+n"],
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
    return told.predict([(j, other, 0.002) for j, other in enumerate(tokens[-40:])]).stop("pause")


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
    import msgspec

    model = msgspec.structs.replace(MODEL, name=name, dtype=name[:4], device=name[:5])
    engine = msgspec.structs.replace(known.engine, model=model, model_name=name)
    return State(engine=engine, sessions=[info], viewers=known.viewers)


class Playing(FakeSource):
    """A source whose errors are hostile too."""

    bad = ""


def main(kind: str, scene: str) -> int:
    """Play the keys and leave."""
    source = Playing(story(kind), daemon(kind))
    bad = "".join(piece.decode("latin-1") for piece in pieces(kind)[:300])
    source.refuse = InspectError(bad, bad)
    app = InspectApp(lambda: source)

    async def play(pilot: object) -> None:
        from textual.pilot import Pilot

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
