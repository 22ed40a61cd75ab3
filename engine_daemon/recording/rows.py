"""One row a committed step: typed arrays, at most 120 bytes a step.

Knows how a `Predicted` and its `Stepped` become a row, not which of them belong together.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from enum import IntFlag
from itertools import accumulate
from typing import Final

from engine_daemon.protocol.events import Predicted, Stepped
from engine_daemon.protocol.image import RowsImage
from engine_daemon.protocol.packing import pack_array, unpack_array

_U32: Final = 0xFFFFFFFF
NO_SEQ: Final = _U32
"""In `seq_predicted`/`seq_stepped`: that event is lost."""
NO_ID: Final = _U32
"""In `ids`: the step is lost, nobody knows its token."""


class Flag(IntFlag):
    """Bits of a row's `flags`."""

    SPECIAL = 1
    FORCED = 2
    SAMPLED = 4
    AFTER_PAUSE = 8
    PREFILL = 16
    RESTORED = 32
    EOS = 64
    LOST = 128
    """Of a damaged recording: one of the two events is missing, its numbers are NaN or zero."""


_SPECIAL: Final = int(Flag.SPECIAL)
"""Plain ints are several times faster to test than flags; this is asked for every token."""


_COLUMNS: Final = (
    *("ids", "prob", "final_prob", "entropy", "margin", "rank"),
    *("forward_ms", "probe_ms", "pick_ms", "append_ms", "total_ms", "waited_ms"),
    *("position", "processed", "flags", "seq_predicted", "seq_stepped"),
)


class Rows:
    """The columns; each array is indexed by step. Times in milliseconds, `prob` raw."""

    def __init__(self) -> None:
        self.ids = array("I")
        self.prob = array("d")
        self.final_prob = array("d")
        self.entropy = array("d")
        self.margin = array("d")
        self.rank = array("I")
        self.forward_ms = array("f")
        self.probe_ms = array("f")
        self.pick_ms = array("f")
        self.append_ms = array("f")
        self.total_ms = array("f")
        self.waited_ms = array("f")
        self.position = array("I")
        self.processed = array("I")
        self.flags = array("H")
        self.seq_predicted = array("I")
        self.seq_stepped = array("I")
        self._piece_ends = array("I")
        self._pieces = bytearray()

    def __len__(self) -> int:
        return len(self.ids)

    def piece(self, step: int) -> bytes:
        """The bytes that name the token of this step."""
        if step < 0:
            raise IndexError(step)
        return bytes(
            self._pieces[self._piece_ends[step - 1] if step else 0 : self._piece_ends[step]]
        )

    def special(self, step: int) -> bool:
        """The token contributes no text."""
        return bool(self.flags[step] & _SPECIAL)

    def contributed(self, start: int = 0) -> Iterator[bytes]:
        """What each token from step `start` on adds to the text."""
        for step in range(start, len(self)):
            yield b"" if self.special(step) else self.piece(step)

    def set_pieces(self, pieces: Sequence[bytes]) -> None:
        """The pieces of rows whose other columns were set as a whole."""
        self._pieces = bytearray().join(pieces)
        self._piece_ends = array("I", accumulate(map(len, pieces)))

    def append_rows(self, other: "Rows", start: int = 0, end: int | None = None) -> None:
        """Append rows [start, end) of another one's."""
        end = len(other) if end is None else end
        if start >= end:
            return
        for name in _COLUMNS:
            getattr(self, name).extend(getattr(other, name)[start:end])
        first = other._piece_ends[start - 1] if start else 0
        moved = len(self._pieces) - first
        self._pieces += other._pieces[first : other._piece_ends[end - 1]]
        self._piece_ends.extend(at + moved for at in other._piece_ends[start:end])

    def rows_image(self) -> RowsImage:
        """All rows, packed."""
        return RowsImage(
            columns={name: pack_array(getattr(self, name)) for name in _COLUMNS},
            piece_ends=pack_array(self._piece_ends),
            pieces=bytes(self._pieces),
        )

    def load(self, image: RowsImage) -> None:
        """The rows of an image instead of one's own; ValueError when its columns do not fit."""
        for name in _COLUMNS:
            setattr(self, name, unpack_array(getattr(self, name), image.columns.get(name, b"")))
        self._piece_ends = unpack_array(self._piece_ends, image.piece_ends)
        self._pieces = bytearray(image.pieces)
        lengths = {len(getattr(self, name)) for name in _COLUMNS} | {len(self._piece_ends)}
        end = self._piece_ends[-1] if self._piece_ends else 0
        if len(lengths) != 1 or end != len(self._pieces):
            raise ValueError("the columns do not fit each other")

    def cut(self, step: int) -> "Rows":
        """Take the rows from `step` on off the end."""
        taken = Rows()
        taken.append_rows(self, step)
        for name in _COLUMNS:
            del getattr(self, name)[step:]
        del self._piece_ends[step:]
        del self._pieces[self._piece_ends[-1] if step else 0 :]
        return taken

    def add_step(
        self, stepped: Stepped, seq: int, predicted: Predicted, seq_predicted: int
    ) -> None:
        """The row of a step whose two events are there."""
        flags = _flags_of_pick(stepped)
        flags |= Flag.AFTER_PAUSE if predicted.after_pause else 0
        flags |= Flag.PREFILL if predicted.phase == "prefill" else 0
        flags |= Flag.RESTORED if predicted.restored is not None else 0
        self._token(stepped, seq, flags)
        self.prob.append(exp(stepped.logit - predicted.logsumexp))
        self.entropy.append(predicted.entropy_bits)
        self.margin.append(predicted.margin)
        self.forward_ms.append(predicted.forward_ms)
        self.probe_ms.append(predicted.probe_ms)
        self.waited_ms.append(predicted.waited_ms)
        self.position.append(_u32(predicted.position))
        self.processed.append(_u32(predicted.processed))
        self.seq_predicted.append(_u32(seq_predicted))

    def add_unpredicted(self, stepped: Stepped, seq: int) -> None:
        """The row of a step whose `Predicted` is lost: the token is known, its distribution not."""
        self._token(stepped, seq, _flags_of_pick(stepped) | Flag.LOST)
        self._no_distribution()

    def add_lost(self) -> None:
        """The row of a step nothing is known of."""
        self.ids.append(NO_ID)
        self.seq_stepped.append(NO_SEQ)
        self.rank.append(0)
        self.flags.append(Flag.LOST)
        self._piece_ends.append(len(self._pieces))
        for column in (self.final_prob, self.pick_ms, self.append_ms, self.total_ms):
            column.append(math.nan)
        self._no_distribution()

    def _token(self, stepped: Stepped, seq: int, flags: int) -> None:
        self._pieces += stepped.piece
        self._piece_ends.append(len(self._pieces))
        self.ids.append(_u32(stepped.id))
        self.final_prob.append(exp(stepped.final_logprob))
        self.rank.append(_u32(stepped.rank))
        self.pick_ms.append(stepped.pick_ms)
        self.append_ms.append(stepped.append_ms)
        self.total_ms.append(stepped.total_ms)
        self.flags.append(flags)
        self.seq_stepped.append(_u32(seq))

    def _no_distribution(self) -> None:
        for numbers in (self.prob, self.entropy, self.margin):
            numbers.append(math.nan)
        for times in (self.forward_ms, self.probe_ms, self.waited_ms):
            times.append(math.nan)
        for counts in (self.position, self.processed):
            counts.append(0)
        self.seq_predicted.append(NO_SEQ)


def exp(logprob: float) -> float:
    """A probability from its logarithm, which rounding may leave a little above 0."""
    return math.exp(min(logprob, 0.0))


def _flags_of_pick(stepped: Stepped) -> int:
    how = {"greedy": 0, "sampled": Flag.SAMPLED, "forced": Flag.FORCED}[stepped.how]
    special = Flag.SPECIAL if stepped.special else 0
    return how | special | (Flag.EOS if stepped.stop == "eos" else 0)


def _u32(value: int) -> int:
    """Numbers out of range occur in broken recordings only; they must not end the reading."""
    return min(max(value, 0), _U32)
