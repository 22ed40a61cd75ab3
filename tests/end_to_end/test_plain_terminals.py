"""Terminals that can do little: no colour, no screen, no room, no terminal at all."""

import re
from functools import partial

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.terminal import Terminal

pytestmark = [pytest.mark.terminal, pytest.mark.fault("T4")]

_STYLE = re.compile(rb"\x1b\[([0-9;:]*)m")


def colours(output: bytes) -> set[int]:
    """Every number of a style that chooses a colour; the defaults (39, 49) choose none."""
    found: set[int] = set()
    for style in _STYLE.findall(output):
        found |= {int(part) for part in re.split(rb"[;:]", style) if part}
    chosen = {*range(30, 39), *range(40, 49), *range(90, 98), *range(100, 108)}
    return found & chosen


def walk(screen: Terminal) -> None:
    """Through what has colours: tokens of all probabilities, dialogs, a refusal."""
    screen.until("step 0 pending")
    screen.press("9s")
    screen.until("step 9 pending")
    screen.press("tab")
    for key, words in (("p", "SAMPLER"), ("?", "HELP"), ("t", "SESSIONS"), ("b", "BREAKPOINTS")):
        screen.press(key)
        title = f"─ {words} ─"
        screen.until(title)
        screen.press("escape")
        screen.until(lambda picture, title=title: title not in picture)  # type: ignore[misc]
    screen.press("q")
    screen.finish()


def test_no_colour_means_none_at_all(place: Place) -> None:
    place.env |= {"NO_COLOR": "1", "COLORTERM": "truecolor"}
    with place.terminal(*SCRIPTED, "Hello") as screen:
        walk(screen)
    assert colours(screen.output) == set()
    written = b";".join(_STYLE.findall(screen.output)).split(b";")
    styles = {int(part) for part in written if part}
    assert styles >= {1, 2, 4, 7}  # bold, dim, underlined, reversed say what colours would


def test_an_empty_no_color_is_none(place: Place) -> None:
    place.env |= {"NO_COLOR": "", "COLORTERM": "truecolor"}
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("step 0 pending")
        screen.press("q")
        screen.finish()
    assert colours(screen.output) >= {38, 48}


def test_without_colour_the_pane_in_front_has_heavy_lines(place: Place) -> None:
    place.env["NO_COLOR"] = "1"
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("┏━ SEQUENCE")
        screen.until("╭─ NEXT TOKEN")
        screen.press("tab")
        screen.until("┏━ NEXT TOKEN")
        screen.until("╭─ SEQUENCE")
        screen.press("q")
        screen.finish()


@pytest.mark.parametrize("term", ["dumb", ""])
def test_without_a_screen_nothing_steers_the_terminal(place: Place, term: str) -> None:
    """A model that loads, text, a status: not one escape sequence."""
    place.env["TERM"] = term
    for words in (
        ("run", *SCRIPTED, "--steps", "3", "Hello"),
        ("daemon", "status"),
        ("sessions",),
        ("doctor",),
    ):
        with place.terminal(*words) as screen:
            screen.finish()
        assert b"\x1b" not in screen.output
        assert screen.output
    with place.terminal("attach") as screen:
        assert f"TERM={term}" in screen.finish(2) if term else "TERM is not set" in screen.finish(2)


def test_the_smallest_screen_and_its_dialogs(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello", columns=20, lines=5) as screen:
        screen.until("%")
        for key in ("p", "?", "t", "b", "v", "B", "m", "'", ":"):
            screen.press(key)
            screen.press("escape")
        wait_for(lambda: b"Traceback" not in screen.output)
        screen.until("%")
        # The last size is not the first one: when all of them are told as one, it is a change.
        for columns, lines in ((1, 1), (5, 2), (21, 6)):
            screen.resize(columns, lines)
        screen.until("%")
        screen.process.terminate()
        screen.finish(143)
    assert b"Traceback" not in screen.output


def test_of_many_sizes_the_last_one_counts(place: Place) -> None:
    """As when a window is dragged: a size that comes while another is being handled."""

    def reaches(columns: int, picture: str) -> bool:
        return {"╮", "│", "╯"} <= {row[columns - 1] for row in picture.splitlines()}

    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("SEQUENCE")
        for columns in range(100, 125):
            for size in ((50, 20), (51, 21), (52, 20), (53, 22), (columns, 30)):
                screen.resize(*size)
            screen.until(partial(reaches, columns))
        screen.press("q")
        screen.finish()


@pytest.mark.parametrize("words", [(), ("Hello",), ("attach",), ("attach", "ssh://nowhere")])
def test_no_terminal_is_said_before_anything_is_started(
    place: Place, words: tuple[str, ...]
) -> None:
    done = place.run(*words, code=2)
    assert "the screen needs a terminal" in done.err
    instead = "sessions list" if words[:1] == ("attach",) else "run PROMPT"
    assert f"llm-inspect {instead}" in done.err
    assert done.out == b""
    assert list(place.connections()) == []
