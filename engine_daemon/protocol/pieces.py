"""The table id → bytes that the tokens process writes and the worker reads.

File: `LIP1`, u32 length of a msgpack header `{tokenizer_id, count, probe: [[text, ids], …]}`, the
header, then columns: u8 special × count, u32 end offsets × count, the pieces. Little-endian.
Knows how it is laid out; what a token's bytes are is decided in `engine_daemon.tokens`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon.protocol.packing import pack_ints, unpack_ints

_MAGIC: Final = b"LIP1"


class ProbeText(msgspec.Struct, frozen=True):
    """A text and the ids the tokens process gives it, for the worker to compare."""

    text: str
    ids: list[int]


class _Header(msgspec.Struct, frozen=True):
    tokenizer_id: str
    count: int
    probe: list[ProbeText]


class PieceTable:
    """Bytes of every token id. `special` ids name themselves but contribute no text."""

    def __init__(
        self,
        tokenizer_id: str,
        pieces: Sequence[bytes],
        special: Sequence[bool],
        probe: Sequence[ProbeText] = (),
    ) -> None:
        self.tokenizer_id = tokenizer_id
        self.pieces = list(pieces)
        self.special = list(special)
        self.probe = list(probe)

    def __len__(self) -> int:
        return len(self.pieces)

    def piece(self, token_id: int) -> bytes:
        """Bytes that name the token; an id beyond the tokenizer (padded vocabulary) is `<id>`."""
        if token_id < len(self.pieces):
            return self.pieces[token_id]
        return b"<%d>" % token_id

    def is_special(self, token_id: int) -> bool:
        """True when the token contributes no text; so do ids beyond the tokenizer."""
        return token_id >= len(self.special) or self.special[token_id]

    def named(self, ids: Sequence[int]) -> tuple[list[bytes], list[bool]]:
        """`piece` and `is_special` of many, as every step has them."""
        if ids and max(ids) < min(len(self.pieces), len(self.special)):
            return [self.pieces[i] for i in ids], [self.special[i] for i in ids]
        return [self.piece(i) for i in ids], [self.is_special(i) for i in ids]

    def write(self, path: Path) -> None:
        """Write the file beside and rename it into place."""
        header = msgspec.msgpack.encode(_Header(self.tokenizer_id, len(self.pieces), self.probe))
        ends, total = [], 0
        for piece in self.pieces:
            total += len(piece)
            ends.append(total)
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(
            b"".join(
                [
                    _MAGIC,
                    pack_ints("I", [len(header)]),
                    header,
                    pack_ints("B", map(int, self.special)),
                    pack_ints("I", ends),
                    *self.pieces,
                ]
            )
        )
        os.replace(beside, path)

    @classmethod
    def read(cls, path: Path) -> "PieceTable":
        """Inverse of `write`; ValueError when the file is no such table."""
        raw = path.read_bytes()
        if raw[:4] != _MAGIC:
            raise ValueError(f"{path} is no piece table")
        (size,) = unpack_ints("I", raw[4:8])
        header = msgspec.msgpack.decode(raw[8 : 8 + size], type=_Header)
        at = 8 + size
        special = raw[at : at + header.count]
        at += header.count
        ends = unpack_ints("I", raw[at : at + 4 * header.count])
        at += 4 * header.count
        starts = [0, *ends][: header.count]
        pieces = [raw[at + a : at + b] for a, b in zip(starts, ends, strict=True)]
        return cls(header.tokenizer_id, pieces, [bool(x) for x in special], header.probe)
