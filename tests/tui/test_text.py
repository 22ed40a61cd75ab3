"""The character map: whatever comes in, nothing that comes out can act on a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from engine_daemon.sizes import sized
from tui.text import (
    DASH,
    SafeText,
    clip,
    fit,
    lines_kept,
    millis,
    percent,
    show,
    show_text,
    size,
    token,
)

HOSTILE = [
    b"\x1b[31mred\x1b[0m",
    b"\x1b]52;c;cm0gLXJmIC8=\x07",
    b"\x1b]0;title\x1b\\",
    b"\x1bP1;1|\x1b\\",
    b"\x9b31m",
    "\x9b31m".encode(),
    "\x9d52;c;eA==\x9c".encode(),
    b"\x1b[6n\x1b[c",
    b"\x1b[2J\x1b[H",
    b"\x1b[?1049l",
    b"\x1b]8;;http://evil\x07link\x1b]8;;\x07",
    b"\x1b(0lqqk",
    b"\r\n\t\x08\x7f\x0e\x0f",
    "abc\u202edef\u2066x\u2069".encode(),
    "zero\u200bwidth\u2060\ufeff\u200d".encode(),
    "line\u2028para\u2029".encode(),
    "tag\U000e0041\U000e007f".encode(),
    b"\xed\xa0\x80\xed\xb0\x80",
    "\ufdd0\uffff\U0010ffff\ue000".encode(),
    ("a" + "\u0301" * 40).encode(),
    "\u0301lone mark".encode(),
    b"\xf0\x9f\x98",
    b"\xe2\x98",
    b"[/][b][@click=app.quit]x[/]",
    b"[@click=app.quit]x",
    b"[bold red]$primary{x}",
    "\u00ad\u034f\u115f\u3164\u2800\ufe0f".encode(),
]
ALLOWED_WIDTHLESS = 4


def assert_safe(text: str) -> None:
    """No character of `text` is more than a picture."""
    run = 0
    for char in text:
        category = unicodedata.category(char)
        assert category not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), hex(ord(char))
        assert category != "Zs" or char == " "
        run = run + 1 if cell_len(char) == 0 else 0
        assert run <= ALLOWED_WIDTHLESS


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_alone_is_visible(byte: int) -> None:
    shown = show(bytes([byte]))
    assert_safe(shown)
    assert cell_len(shown) >= 1
    assert token(bytes([byte])).strip()


@pytest.mark.parametrize("raw", HOSTILE)
def test_hostile_strings_become_pictures(raw: bytes) -> None:
    assert_safe(show(raw))
    assert_safe(token(raw))
    assert_safe(lines_kept(raw).replace("\n", ""))


@given(st.binary(max_size=200))
@pytest.mark.fault("T3")
def test_any_bytes_are_safe(raw: bytes) -> None:
    assert_safe(show(raw))


@given(st.text(max_size=200))
def test_any_text_is_safe(text: str) -> None:
    assert_safe(show_text(text))


@given(st.lists(st.binary(max_size=8), max_size=8))
@pytest.mark.fault("T3")
def test_pieces_shown_apart_are_safe_together(pieces: list[bytes]) -> None:
    """A sequence split over tokens cannot come together again."""
    assert_safe("".join(show(piece) for piece in pieces if show(piece)[:1] != "◌"))


def test_the_map() -> None:
    assert show(b"\x1b") == "␛"
    assert show(b"\x00\x7f") == "␀␡"
    assert show("\x9b".encode()) == "<9b>"
    assert show(b"\xe2\x98") == "<E2 98>"
    assert show(b"a\xffb") == "a<FF>b"
    assert show("\u202e".encode()) == "<U+202E>"
    assert show("\u00a0".encode()) == "<U+00A0>"
    assert show(b"a b\n\t") == "a b⏎⇥"
    assert token(b" Ku") == "␣Ku"
    assert token(b"") == "∅"
    assert lines_kept(b"a\n\nb") == "a⏎\n⏎\nb"
    assert show("Grüße 世界 😀 é".encode()) == "Grüße 世界 😀 é"
    assert show_text("\udc80") == "<ED B2 80>"


@given(st.text(max_size=40), st.integers(min_value=0, max_value=30))
def test_fit_is_exact_in_cells(text: str, cells: int) -> None:
    safe = show_text(text)
    assert cell_len(fit(safe, cells)) == cells
    assert cell_len(fit(safe, cells, right=True)) == cells
    assert cell_len(clip(safe, cells)) <= cells


def test_clip_marks_what_is_left_out() -> None:
    assert clip(SafeText("abcdef"), 4) == "abc…"
    assert clip(SafeText("abcd"), 4) == "abcd"
    assert clip(SafeText("世界人"), 4) == "世…"
    assert clip(SafeText("abc"), 0) == ""


def test_numbers() -> None:
    assert percent(0.2249) == "22.5 %"
    assert percent(1.0) == "100.0 %"
    assert percent(0.0) == "0.0 %"
    assert percent(1e-9) == percent(0.00049) == "<0.1 %"
    assert percent(0.0005) == "0.1 %"
    assert percent(None) == percent(float("nan")) == DASH
    assert millis(0.2) == "0.20 ms"
    assert millis(13.12) == "13.1 ms"
    assert millis(12_345.0) == "12.3 s"
    assert millis(None) == DASH
    assert size(0) == "0 B"
    assert size(23_040) == "23 kB"
    assert size(269_030_016) == sized(269_030_016) == "269 MB"
    assert size(None) == DASH
