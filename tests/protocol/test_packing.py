"""Columns: little-endian, lossless, and cut only where the lengths say so."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.protocol.packing import (
    pack_floats,
    pack_ints,
    split,
    unpack_floats,
    unpack_ints,
)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_u32_columns_are_little_endian(values: list[int]) -> None:
    packed = pack_ints("I", values)
    assert packed == struct.pack(f"<{len(values)}I", *values)
    assert unpack_ints("I", packed) == values


@given(st.lists(st.integers(0, 2**16 - 1)))
def test_u16_columns_are_little_endian(values: list[int]) -> None:
    packed = pack_ints("H", values)
    assert packed == struct.pack(f"<{len(values)}H", *values)
    assert unpack_ints("H", packed) == values


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_f32_columns_keep_infinities(values: list[float]) -> None:
    packed = pack_floats("f", values)
    assert packed == struct.pack(f"<{len(values)}f", *values)
    assert unpack_floats("f", packed) == values


def test_a_nan_stays_one() -> None:
    assert math.isnan(unpack_floats("f", pack_floats("f", [math.nan]))[0])


def test_half_an_item_is_refused() -> None:
    with pytest.raises(ValueError):
        unpack_ints("I", b"\x00" * 6)


@given(st.lists(st.binary(max_size=9)))
def test_split_undoes_join(pieces: list[bytes]) -> None:
    assert split(b"".join(pieces), map(len, pieces)) == pieces


@pytest.mark.parametrize("lengths", [[1], [3, 3], []])
def test_lengths_that_do_not_add_up_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError):
        split(b"abcd", lengths)
