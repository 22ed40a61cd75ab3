"""Others on the same session: the lease, who is there, who did what, notes."""

import re

import msgspec
import pytest
from textual.widgets import Input, OptionList

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Lost, Note, Removed, RunTo
from engine_daemon.protocol.events import EngineLost
from engine_daemon.recording.columns import Columns
from tests.tui.pilot import keys, rows, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import SESSION, Story, paused, state
from tui.app import InspectApp
from tui.screens.notes import NotesScreen
from tui.screens.status import StatusBar
from tui.screens.viewers import ViewersScreen


def first_line(app: InspectApp, columns: int) -> str:
    """As it would be in a terminal of this width."""
    (parts,) = app.main.query_one("#status", StatusBar).draw(columns, 1)
    line = "".join(part.text for part in parts)
    assert len(line) <= columns
    return line


def held(by: str = "bob@box") -> FakeSource:
    """Two viewers; the other one has the lease."""
    source = FakeSource(paused())
    source.hold(by)
    return source


async def test_a_refused_step_says_whose_the_lease_is_and_how_to_take_it() -> None:
    async with screen(source=held()) as (pilot, app, source):
        assert "lease bob@box · 2 viewers" in rows(app, "status")[0]
        source.refuse = InspectError("lease held by bob@box", code="no_lease")
        await pilot.press("s")
        await until(pilot, lambda: keys(app) == "lease held by bob@box · L takes it")
        await pilot.press("S")
        assert "space pause/run" in keys(app)
        assert said(app) == ""


@pytest.mark.parametrize("answer", ["n", "escape", "s", "L"])
async def test_a_lease_is_not_taken_without_a_yes(answer: str) -> None:
    async with screen(source=held()) as (pilot, app, source):
        await pilot.press("L")
        assert "take the lease from bob@box?" in keys(app)
        await pilot.press(answer)
        await pilot.pause()
        assert keys(app) == "no: the lease stays where it is"
        await pilot.press("S")
        await until(pilot, lambda: "stays where" not in keys(app))
        assert (source.leased, source.sent) == ([], [])


async def test_a_lease_is_taken_with_a_yes_and_given_back() -> None:
    async with screen(source=held()) as (pilot, app, source):
        await pilot.press("L", "y")
        await until(pilot, lambda: source.leased == [("take", SESSION)])
        await until(pilot, lambda: "lease you" in rows(app, "status")[0])
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        await pilot.press("L")
        await until(pilot, lambda: source.leased[-1] == ("release", SESSION))
        await until(pilot, lambda: "lease" not in rows(app, "status")[0])
        await pilot.press("L")
        await until(pilot, lambda: source.leased[-1] == ("acquire", SESSION))


async def test_who_loses_the_lease_is_told_and_steps_no_further() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("L")
        await until(pilot, lambda: app.view.lease == "ours")
        assert app.main.control is not None
        app.main.control._owed = 7
        source.number = 0
        source.tell(Lost(session=SESSION, lease=1, by="bob@box"))
        await until(pilot, lambda: "bob@box took the lease" in keys(app))
        assert app.main.control._owed == 0


async def test_an_observer_is_called_one_and_offered_no_commands() -> None:
    async with screen(observe=True) as (pilot, app, source):
        assert "OBSERVING" in rows(app, "status")[0]
        for word in ("pause/run", "new prompt", "choose"):
            assert word not in keys(app)
        for key in ("space", "s", "r"):
            await pilot.press(key)
            await pilot.pause()
        for key in ("L", "m"):  # said at once: nothing is asked or typed in vain
            await pilot.press(key)
            await until(pilot, lambda: "only observes" in keys(app))
            await pilot.press("escape")
            await until(pilot, lambda: "only observes" not in keys(app))
        assert (source.sent, source.leased) == ([], [])


async def test_a_narrow_first_line_has_the_lease_first_then_the_viewers() -> None:
    async with screen(source=held("ann@newcomer-box"), size=(80, 24)) as (pilot, app, source):
        line = rows(app, "status")[0]
        assert "lease ann@newcomer-box" in line
        assert "tok/s" not in line
        source.hold("a")
        await until(pilot, lambda: "lease a ·" in rows(app, "status")[0])
        assert "2 viewers" in rows(app, "status")[0]


async def test_an_observers_narrow_first_line_has_the_lease_or_a_sign_of_it() -> None:
    name = "somebody-with-a-long-name@box"
    story = Story().tokens(*((b" word", 0.4),) * 300).predict()
    source = FakeSource(story.stop_at(1, "token_prob < 0.25 and entropy > 3.5"))
    source.hold(name)
    async with screen(source=source, observe=True) as (_, app, _source):
        for columns in range(50, 130, 3):
            line = first_line(app, columns)
            assert "OBSERVING" in line
            assert "lease somebo" in line or line.rstrip().endswith("…")
            if columns >= 80:
                assert "lease somebody-with" in line


async def test_the_room_of_the_first_line_is_filled_item_by_item() -> None:
    """What does not fit keeps nothing out that does."""
    source = "token_prob < 0.25 and entropy > 3.5 or repeat >= 4"
    story = Story().tokens(*((b" word", 0.4),) * 9).predict().stop_at(1, source)
    served, seen = FakeSource(story), 0
    served.hold("bob@box")
    async with screen(source=served) as (_, app, _):
        for columns in range(70, 170, 3):
            line = first_line(app, columns)
            free = max(len(gap) for gap in re.findall(" +", line.rstrip()))
            parts = {
                " · bf16 · cpu×1": "bf16",
                " · 76.9 tok/s ": "tok/s",
                " · 2 viewers ": "viewers",
            }
            for item, word in parts.items():
                assert word in line or free <= len(item), (columns, line)
            seen += "bf16" in line
    assert seen


async def test_the_viewers_counted_are_those_of_the_session() -> None:
    known = state()
    elsewhere = msgspec.structs.replace(known.viewers[1], sessions=["OTHERONE"])
    first = msgspec.structs.replace(known, viewers=[known.viewers[0], elsewhere])
    async with screen(source=FakeSource(paused(), first=first)) as (_, app, _source):
        assert "1 viewer ·" in rows(app, "status")[0]


async def test_who_did_what_is_below_the_text() -> None:
    async with screen() as (pilot, app, _source):
        app.view.columns.acts.clear()
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        rows(app, "sequence")
        assert "step to 4" in str(app.main.query_one("#sequence").border_subtitle)
    alone = state()
    source = FakeSource(paused(), first=msgspec.structs.replace(alone, viewers=alone.viewers[:1]))
    async with screen(source=source) as (_, app, _source):
        rows(app, "sequence")
        assert "step" not in str(app.main.query_one("#sequence").border_subtitle)


async def test_an_error_says_its_reason_each_time_and_marks_its_command() -> None:
    why = "68 positions are more than the context of 64 \x1b[31mtokens"
    story = paused()
    async with screen(story) as (pilot, app, source):
        for _ in range(2):
            story.command("run_to", 4).stop("error", message=why)
            source.flush()
            await until(pilot, lambda: "error: 68 positions are more than" in keys(app))
            assert "\x1b" not in keys(app)
            await pilot.press("S")
            await until(pilot, lambda: "space pause/run" in keys(app))
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ViewersScreen))
        shown = str(app.screen.query_one("#viewer-list").render())
        failed = [line for line in shown.split("\n") if "✗ 68 positions are more" in line]
        assert len(failed) == 2
        assert all("step to 4" in line for line in failed)
        late = Columns.of(app.view.columns.image())  # whoever joins now, or is back, sees the same
        assert list(late.failed.values()) == [why, why]


async def test_a_lost_engine_is_not_said_on_once_it_is_back() -> None:
    why = "the engine was killed by SIGKILL"
    story = paused().command("run_to", None)
    async with screen(story) as (pilot, app, source):
        lost = EngineLost(t_ns=1, wall_ns=1, step=3, engine=1, rank=0, signal="KILL", message=why)
        story.add(lost)
        story.stop("engine_lost", message=why)
        source.flush()  # before the state: that one still says that the lost engine is ready
        await until(pilot, lambda: keys(app) == f"engine lost: {why}")
        source.set_state(state(word="dead", message=why))
        source.set_state(state(word="loading", engine=2))
        await until(
            pilot, lambda: app.view.engine is not None and app.view.engine.word == "loading"
        )
        assert keys(app) == f"engine lost: {why}"
        source.set_state(state(engine=2))
        await until(pilot, lambda: keys(app) == "engine back; space goes on")
        await pilot.press("space")
        await until(pilot, lambda: "space pause/run" in keys(app))
        await until(pilot, lambda: app.view.running)


async def test_a_loss_is_not_said_on_when_another_viewer_went_on() -> None:
    story = paused().command("run_to", None).stop("engine_lost", message="the daemon was restarted")
    async with screen(story) as (pilot, app, source):
        await until(pilot, lambda: keys(app) == "engine back; space goes on")
        story.command("run_to", None)
        source.flush()
        await until(pilot, lambda: "space pause/run" in keys(app))


async def test_a_note_is_written_at_the_cursor_and_found_again() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("apostrophe")
        assert "no notes yet" in keys(app)
        await pilot.press("g", "m")
        await until(pilot, lambda: bool(app.screen.query("#note-text")))
        app.screen.query_one(Input).value = " odd [/b] \x1b]here "
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.view.columns.notes))
        assert source.sent[-1][0] == Note(text="odd [/b] \x1b]here", step=0, branch=0)
        await until(pilot, lambda: said(app) == "note written at step 0")
        await pilot.press("G")
        assert app.view.at_head
        await pilot.press("apostrophe")
        await until(pilot, lambda: isinstance(app.screen, NotesScreen))
        option = app.screen.query_one(OptionList).get_option_at_index(0)
        assert "[/b]" in str(option.prompt)
        assert "\x1b" not in str(option.prompt)
        await pilot.press("enter")
        await until(pilot, lambda: app.view.at == 0)
        assert "odd [/b]" in keys(app)


async def test_notes_while_it_runs_and_nothing_to_write() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("space")
        await until(pilot, lambda: app.view.running)
        await pilot.press("m", "h", "i", "enter")
        await until(pilot, lambda: [note.text for note in app.view.columns.notes] == ["hi"])
        await pilot.press("m", "space", "enter")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press("m", "escape")
        await until(pilot, lambda: app.screen is app.main)
        assert [type(do) for do, _, _ in source.sent] == [RunTo, Note]


async def test_who_looks_at_a_recording_that_is_removed_is_told() -> None:
    async with screen() as (pilot, app, source):
        source.tell(Removed(session="OTHERONE", by="eve@box"))
        source.tell(Removed(session=SESSION, by="bob@box"))
        await until(pilot, lambda: "bob@box removed this recording" in keys(app))
        assert "what is shown here is all of it" in keys(app)


async def test_a_condition_leaves_room_for_the_lease_and_the_viewers() -> None:
    source = "token_prob < 0.25 and entropy > 3.5 or repeat >= 4"
    story = Story().tokens(*((b" word", 0.4),) * 9).predict().stop_at(1, source)
    served = FakeSource(story)
    served.hold("bob@box")
    async with screen(source=served, size=(80, 24)) as (_, app, _):
        (line,) = rows(app, "status")
        assert "condition 1" in line
        assert "lease bob@box · 2 viewers" in line
    async with screen(source=served, size=(160, 24)) as (_, app, _):
        (line,) = rows(app, "status")
        assert "condition 1: token_prob < 0.25" in line
        assert "lease bob@box · 2 viewers" in line
