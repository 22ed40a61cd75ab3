"""No character that could steer a terminal survives."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.characters import Visible, undecodable, visible


def test_every_control_and_invisible_character_is_replaced() -> None:
    for code in range(0x110000):
        shown = visible(code)
        for char in shown:
            category = unicodedata.category(char)
            assert category[0] != "C", hex(code)
            assert category not in ("Zl", "Zp"), hex(code)


def test_harmless_characters_stay() -> None:
    for char in "aZ ~é漢🙂":
        assert visible(ord(char)) == char


def test_kept_characters() -> None:
    assert "a\tb\n\x1b[2J".translate(Visible(kept="\n\t")) == "a\tb\n␛[2J"


@given(st.binary(max_size=40))
def test_any_bytes_become_text_without_surrogates(raw: bytes) -> None:
    text = undecodable(raw.decode("utf-8", "surrogateescape"))
    text.encode("utf-8")


def test_bytes_that_are_no_text_show_as_hexadecimal() -> None:
    assert undecodable(b"a\xe2\x98".decode("utf-8", "surrogateescape")) == "a<E2 98>"
