"""Bytes of tokens as text: nothing lost, nothing invented, never empty."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.export.text import final_text, readable

SNOWMAN = "☃".encode()


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (b" Ku", " Ku"),
        (SNOWMAN, "☃"),
        (SNOWMAN[:2], "<E2 98>"),
        (SNOWMAN[2:], "<83>"),
        (b"a" + SNOWMAN[:1] + b"b", "a<E2>b"),
        (b"\xff\xfe", "<FF FE>"),
        (b"\xc0\x80", "<C0 80>"),
        (b"\xed\xa0\x80", "<ED A0 80>"),
        (b"\n\x1b[0m\x00", "\n\x1b[0m\x00"),
        (b"", "<empty>"),
    ],
)
def test_one_token(piece: bytes, text: str) -> None:
    assert readable(piece) == text


@given(st.text(), st.data())
def test_text_cut_anywhere_is_whole_again(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    edges = [0, *cuts, len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(edges)]
    assert final_text(pieces) == text


@given(st.binary())
def test_any_bytes_become_text_that_can_be_encoded(raw: bytes) -> None:
    text = readable(raw)
    assert text
    text.encode()
    assert text.count("\ufffd") == raw.count("\ufffd".encode())


@given(st.lists(st.one_of(st.text(alphabet="aé☃𝄞", min_size=1), st.binary(min_size=1))))
def test_what_is_not_utf8_is_there_in_hexadecimal(parts: list[str | bytes]) -> None:
    raw = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    undone = b""
    for plain, hexadecimal in re.findall(r"([^<]+|<(?![0-9A-F ]+>))|<([0-9A-F ]+)>", readable(raw)):
        undone += plain.encode() if plain else bytes.fromhex(hexadecimal)
    if b"<" not in raw and raw:
        assert undone == raw


def test_many_bad_bytes_take_no_quadratic_time() -> None:
    assert len(final_text([b"a\xff"] * 200_000)) == 200_000 * 5
