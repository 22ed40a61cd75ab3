"""The list of viewers, and telling those of one name apart."""

import re

import msgspec
import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Lost
from engine_daemon.protocol.state import ViewerInfo
from tests.tui.pilot import keys, rows, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import SESSION, paused, state
from tui.app import InspectApp
from tui.screens.viewers import ViewersScreen


async def test_the_list_of_viewers() -> None:
    known = state()
    people = [
        ViewerInfo(
            viewer=b"1",
            who="ann@box",
            client="tui 0.1.0",
            role="controller",
            sessions=[SESSION],
            holds=[SESSION],
        ),
        ViewerInfo(
            viewer=b"2", who="e\x1b[31mve", client="run 1", role="observer", lag=12, uid=1002
        ),
    ]
    source = FakeSource(paused(), first=msgspec.structs.replace(known, viewers=people))
    async with screen(source=source, size=(80, 24)) as (pilot, app, _):
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ViewersScreen))
        shown = str(app.screen.query_one("#viewer-list").render())
        lines = shown.split("\n")
        assert lines[1].split() == ["●", "ann@box", "controller", "this", "screen", "0", SESSION]
        assert "\x1b" not in shown
        assert lines[2].split()[-5:] == ["(1002)", "observer", "run", "12", "–"]
        assert "WHO DID WHAT" in shown
        assert "ann: step to" in shown.replace("ann@box", "ann")
        source.set_state(msgspec.structs.replace(known, viewers=people[:1]))
        await until(
            pilot, lambda: "(1002)" not in str(app.screen.query_one("#viewer-list").render())
        )
        await pilot.press("escape")
        assert app.screen is app.main


async def test_viewers_of_one_name_are_told_apart_and_the_words_explained() -> None:
    known = state()
    both = [
        msgspec.structs.replace(one, who="ann@box", viewer=id_ * 8, holds=holds)
        for one, id_, holds in zip(
            known.viewers, (b"\x1a\x64", b"\x3a\xc4"), ([], [SESSION]), strict=True
        )
    ]
    other = msgspec.structs.replace(known.viewers[1], viewer=b"3" * 16)
    source = FakeSource(paused(), first=msgspec.structs.replace(known, viewers=[*both, other]))
    async with screen(source=source, size=(80, 24)) as (pilot, app, _):
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ViewersScreen))
        shown = app.screen.query_one("#viewer-list")
        lines = str(shown.render()).split("\n")
        assert lines[1].split()[:5] == ["ann@box", "#1a64", "controller", "this", "screen"]
        assert lines[2].split()[:5] == ["●", "ann@box", "#3ac4", "controller", "tui"]
        assert lines[3].split()[:3] == ["bob@box", "controller", "tui"]
        assert max(map(len, lines[:4])) <= shown.size.width
        for word in ("● has the lease", "ROLE ", "LAG "):
            assert sum(line.startswith(word) for line in lines) == 1


async def test_many_viewers_leave_room_for_what_was_done_last() -> None:
    known = state()
    crowd = [
        msgspec.structs.replace(known.viewers[1], viewer=bytes([n]) * 16, who=f"v{n}@box")
        for n in range(30)
    ]
    story = paused()
    for goal in range(40, 60):
        story.command("run_to", goal)
    source = FakeSource(story, first=msgspec.structs.replace(known, viewers=crowd))
    async with screen(source=source, size=(80, 24)) as (pilot, app, _):
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ViewersScreen))
        box = app.screen.query_one("#viewers")
        inside = app.screen.query_one("#viewer-list")
        assert inside.region.bottom < box.region.bottom
        assert inside.size.height == len(str(inside.render()).split("\n"))
        assert "step to 59" in str(inside.render())


def listed(app: InspectApp) -> list[str]:
    """Viewers on the screen, and what is said of the others."""
    lines = str(app.screen.query_one("#viewer-list").render()).split("\n")
    return [re.split(r"@| · ", line.strip())[0] for line in lines[1 : lines.index("")]]


async def test_all_viewers_are_listed_where_they_fit_and_gone_through_where_not() -> None:
    known = state()
    crowd = [
        msgspec.structs.replace(known.viewers[1], viewer=bytes([n]) * 16, who=f"v{n}@box")
        for n in range(20)
    ]
    names = [f"v{n}" for n in range(20)]
    source = FakeSource(paused(), first=msgspec.structs.replace(known, viewers=crowd))
    async with screen(source=source, size=(80, 24)) as (pilot, app, _):
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ViewersScreen))
        assert listed(app) == [*names[:10], "… 1–10 of 20"]
        for key, first in (
            *(("down", 1), ("up", 0), ("up", 0), ("pagedown", 10), ("pagedown", 10)),
            *(("up", 9), ("pageup", 0), ("pageup", 0)),
        ):
            await pilot.press(key)
            await pilot.pause()
            many = f"… {first + 1}–{first + 10} of 20"
            assert listed(app) == [*names[first : first + 10], many], key
    async with screen(source=source, size=(200, 60)) as (pilot, app, _):
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, ViewersScreen))
        assert listed(app) == names


@pytest.mark.parametrize(("others_name", "told"), [("ann@box", "ann@box #3ac4"), ("bob@box",) * 2])
async def test_of_two_with_one_name_it_is_told_which_one_has_the_lease(
    others_name: str, told: str
) -> None:
    """In the first line, in a refusal, in the question and when it is taken; and only of two."""
    known = state()
    people = [
        msgspec.structs.replace(known.viewers[0], viewer=b"\x1a\x64" * 8),
        msgspec.structs.replace(
            known.viewers[1], who=others_name, viewer=b"\x3a\xc4" * 8, holds=[SESSION]
        ),
    ]
    source = FakeSource(paused(), first=msgspec.structs.replace(known, viewers=people))
    source.hold(others_name)
    async with screen(source=source) as (pilot, app, _):
        await until(pilot, lambda: f"lease {told} ·" in rows(app, "status")[0])
        source.refuse = InspectError(f"lease held by {others_name}", code="no_lease")
        await pilot.press("s")
        await until(pilot, lambda: keys(app) == f"lease held by {told} · L takes it")
        await pilot.press("L")
        await until(pilot, lambda: f"take the lease from {told}? y takes it" in keys(app))
        await pilot.press("n")
        source.tell(Lost(session=SESSION, lease=1, by=others_name))
        await until(pilot, lambda: f"{told} took the lease of this session" in keys(app))
