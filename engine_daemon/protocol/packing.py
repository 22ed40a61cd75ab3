"""Arrays inside message bodies: little-endian columns of one kind each.

Knows `array` and byte order only; what a column means stands where it is declared.
"""

import sys
from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeVar

N = TypeVar("N", int, float)
TypeCode = Literal["B", "H", "I", "f", "d"]

_SWAP: Final = sys.byteorder == "big"


def pack_ints(code: Literal["B", "H", "I"], values: Iterable[int]) -> bytes:
    """Column of u8 (`B`), u16 (`H`) or u32 (`I`)."""
    column = array(code, values)
    if _SWAP:
        column.byteswap()
    return column.tobytes()


def pack_floats(code: Literal["f", "d"], values: Iterable[float]) -> bytes:
    """Column of f32 (`f`) or f64 (`d`)."""
    column = array(code, values)
    if _SWAP:
        column.byteswap()
    return column.tobytes()


def unpack_ints(code: Literal["B", "H", "I"], packed: bytes) -> list[int]:
    """Inverse of `pack_ints`; ValueError when the length is no multiple of the item size."""
    column: array[int] = array(code)
    column.frombytes(packed)
    if _SWAP:
        column.byteswap()
    return column.tolist()


def unpack_floats(code: Literal["f", "d"], packed: bytes) -> list[float]:
    """Inverse of `pack_floats`."""
    column: array[float] = array(code)
    column.frombytes(packed)
    if _SWAP:
        column.byteswap()
    return column.tolist()


def pack_array(column: "array[N]") -> bytes:
    """A typed array as a column."""
    if _SWAP:
        column = column[:]
        column.byteswap()
    return column.tobytes()


def unpack_array(like: "array[N]", packed: bytes) -> "array[N]":
    """A column as a typed array of the kind of `like`; ValueError when the length does not fit."""
    column = like[:0]
    column.frombytes(packed)
    if _SWAP:
        column.byteswap()
    return column


def cuts(blob: bytes, lengths: Iterable[int]) -> list[int]:
    """Where pieces of the given lengths begin in `blob`, and where the last one ends; ValueError
    when they do not add up."""
    places = list(accumulate(lengths, initial=0))
    if places[-1] != len(blob):
        raise ValueError(f"pieces add up to {places[-1]} bytes, the column holds {len(blob)}")
    return places


def split(blob: bytes, lengths: Iterable[int]) -> list[bytes]:
    """Cut `blob` into pieces of the given lengths; ValueError when they do not add up."""
    return [blob[a:b] for a, b in pairwise(cuts(blob, lengths))]
