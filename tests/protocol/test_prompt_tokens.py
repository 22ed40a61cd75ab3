"""A prompt's rows: what the columns say, made as a list would have it, and only when looked at."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.protocol.prompt_tokens import NO_OFFSET, PromptTokens
from engine_daemon.protocol.values import PromptToken

OFFSETS = st.none() | st.integers(0, 2**32 - 2)
ROWS = st.lists(
    st.builds(
        PromptToken,
        id=st.integers(0, 2**32 - 1),
        piece=st.binary(max_size=40),
        special=st.booleans(),
        added=st.booleans(),
        start=OFFSETS,
        end=OFFSETS,
    ),
    max_size=20,
)
BOUND = st.none() | st.integers(-25, 25)


def columns(rows: list[PromptToken]) -> dict[str, bytes]:
    """Packed here once more, from the form's description."""

    def u32(values: list[int | None]) -> bytes:
        known = [NO_OFFSET if value is None else value for value in values]
        return struct.pack(f"<{len(known)}I", *known)

    return {
        "ids": u32([row.id for row in rows]),
        "special": bytes(row.special for row in rows),
        "added": bytes(row.added for row in rows),
        "starts": u32([row.start for row in rows]),
        "ends": u32([row.end for row in rows]),
        "piece_len": struct.pack(f"<{len(rows)}H", *[len(row.piece) for row in rows]),
        "pieces": b"".join(row.piece for row in rows),
    }


@given(ROWS, BOUND, BOUND, BOUND.filter(lambda step: step != 0))
def test_they_are_as_a_list_of_them(
    rows: list[PromptToken], start: int | None, stop: int | None, step: int | None
) -> None:
    tokens = PromptTokens(**columns(rows))
    assert len(tokens) == len(rows)
    assert list(tokens) == rows
    assert tokens[start:stop:step] == rows[start:stop:step]
    for index in range(-len(rows), len(rows)):
        assert tokens[index] == rows[index]
    for index, row in enumerate(rows):
        assert tokens.shown(index) == (row.piece, row.special or row.added)
    for beyond in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            tokens[beyond]


@pytest.mark.parametrize("name", ["ids", "special", "added", "starts", "ends", "piece_len"])
def test_a_column_that_lacks_an_entry_is_refused(name: str) -> None:
    row = PromptToken(7, b"", False, False, 0, 0)
    packed = columns([row, row])
    with pytest.raises(ValueError, match="differ in length"):
        PromptTokens(**{**packed, name: packed[name][: len(packed[name]) // 2]})


def test_pieces_that_do_not_add_up_are_refused() -> None:
    packed = columns([PromptToken(7, b"seven", False, False, 0, 5)])
    with pytest.raises(ValueError, match="add up to 5 bytes"):
        PromptTokens(**{**packed, "pieces": b"sev"})
