"""Standard output and error: safe on a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.cli.output import TerminalText, safe, say


@pytest.mark.fault("S9")
def test_nothing_steers_the_terminal() -> None:
    assert safe("a\x1b]52;c;x\x07\nb\tc\u202e\x9b") == "a␛]52;c;x␇\nb\tc<U+202E><9b>"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.data())
def test_pieces_cut_anywhere_show_the_same_text(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    at = data.draw(st.integers(0, len(raw)))
    terminal = TerminalText()
    shown = terminal.feed(raw[:at]) + terminal.feed(raw[at:]) + terminal.feed(b"", final=True)
    assert shown == safe(text)


def test_half_a_character_at_the_end_is_shown_as_bytes() -> None:
    terminal = TerminalText()
    assert terminal.feed(b"a\xe2\x98") == "a"
    assert terminal.feed(b"", final=True) == "<E2 98>"


def test_a_stream_that_cannot_say_it_gets_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stderr", stream)
    say("é")
    stream.seek(0)
    assert stream.read() == "\\xe9\n"
