"""Ids of a text → what each contributes to it and where it lies in it.

What the tokenizer's normaliser left is worked out from the text by the scheme's rules, and held
against what the ids stand for: where the two do not fit, the ids are right and the text is said to
be changed. Knows no tokenizer library.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from engine_daemon.protocol.events import NO_OFFSET
from engine_daemon.tokens.pieces import Scheme

_SPACE: Final = b" "


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is found in the text as a whole, before (or, `normalised`, after) the
    normaliser; `left`/`right`: it takes the white space on that side with it."""

    content: str
    special: bool
    normalised: bool
    left: bool
    right: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All that is to be known of a tokenizer to read its ids. `unknown`: ids that stand for
    whatever the vocabulary lacks; `literal`: other spellings of an id, by id."""

    scheme: Scheme
    normalise: Callable[[str], str]
    pieces: Sequence[bytes]
    added: Mapping[int, Added]
    unknown: frozenset[int]
    literal: Mapping[int, bytes]


@dataclass(slots=True)
class Aligned:
    """One entry a token, and what happened to the text. `prefixed`: spaces put before it;
    `changed`: by the normaliser; `lost`: bytes with no token; `exact`: nothing else differs."""

    pieces: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    prefixed: int = 0
    changed: bool = False
    lost: bytes = b""
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """Characters [`start`, `end`) of the text, which became the tokens [`first`, `last`).
    `written`: one added token as it is written; else text between such tokens."""

    start: int
    end: int
    first: int
    last: int
    written: bool


def align(
    text: str,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    vocabulary: Vocabulary,
    stand_ins: Mapping[int, str] | None = None,
) -> Aligned:
    """Read `ids`, each made from the characters `offsets` of `text`, back into bytes.

    `stand_ins`: characters in `text` (as for `str.translate`) that stand for an added token.
    """
    aligned = Aligned()
    at = 0
    for part in _parts(text, ids, offsets, vocabulary.added):
        raw = text[part.start : part.end].encode()
        if part.written:
            raw = raw.decode().translate(stand_ins).encode() if stand_ins else raw
            _place(aligned, [raw], at, 0)
        else:
            _Segment(part, raw, at, text, ids, offsets, vocabulary).align(aligned)
        at += len(raw)
    return aligned


def _parts(
    text: str,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    added: Mapping[int, Added],
) -> Iterator[_Part]:
    whole = {i: token.content for i, token in added.items() if not token.normalised}
    at, first = 0, 0
    for n, token_id in enumerate(ids):
        if token_id not in whole:
            continue
        start, end = offsets[n]
        if whole[token_id] not in text[start:end]:
            continue  # the same id, but pieced together by the model
        if at < start or first < n:
            yield _Part(at, start, first, n, written=False)
        yield _Part(start, end, n, n + 1, written=True)
        at, first = end, n + 1
    if at < len(text) or first < len(ids):
        yield _Part(at, len(text), first, len(ids), written=False)


def _place(aligned: Aligned, pieces: Sequence[bytes], base: int, before: int) -> None:
    """Append pieces that lie one after the other in the text from `base` on; the first `before`
    bytes of them are not in the text."""
    at = base - before
    for piece in pieces:
        start, at = at, at + len(piece)
        nowhere = start < base and at <= base
        aligned.pieces.append(piece)
        aligned.starts.append(NO_OFFSET if nowhere else max(start, base))
        aligned.ends.append(NO_OFFSET if nowhere else at)


class _Segment:
    """Text between two added tokens; `raw` its bytes, `base` where they begin in the text."""

    def __init__(
        self,
        part: _Part,
        raw: bytes,
        base: int,
        text: str,
        ids: Sequence[int],
        offsets: Sequence[tuple[int, int]],
        vocabulary: Vocabulary,
    ) -> None:
        self._part, self._raw, self._base, self._text = part, raw, base, text
        self._ids = ids[part.first : part.last]
        self._offsets = offsets[part.first : part.last]
        self._vocabulary = vocabulary
        prefix = vocabulary.scheme.prefix
        self._may_prefix = prefix == "always" or (prefix == "first" and part.start == 0)

    def align(self, aligned: Aligned) -> None:
        """Append this segment's tokens."""
        vocabulary = self._vocabulary
        text = self._text[self._part.start : self._part.end]
        expected = vocabulary.scheme.undo(vocabulary.normalise(text))
        prepended = int(vocabulary.scheme.prepends and expected[:1] == _SPACE)
        changed = expected[prepended:] != self._raw
        pieces = [vocabulary.pieces[i] for i in self._ids]
        joined = b"".join(pieces)
        if self._may_prefix and expected[:1] not in (b"", _SPACE) and joined == _SPACE + expected:
            prepended = 1
        elif joined != expected:
            walked = self._walk(expected)
            if walked is not None:
                pieces, prepended = walked
            else:
                _differ(aligned, expected, joined)
                changed = True
        aligned.prefixed += prepended
        aligned.changed |= changed
        joined = b"".join(pieces)
        if joined == self._raw:
            _place(aligned, pieces, self._base, 0)
        elif joined == _SPACE + self._raw and not changed:
            _place(aligned, pieces, self._base, 1)
        else:
            self._place_groups(aligned, pieces)

    def _walk(self, expected: bytes) -> tuple[list[bytes], int] | None:
        """Each token's bytes along `expected`, with the spaces that are put before text on the
        way and their number; None where the tokens do not spell it."""
        vocabulary = self._vocabulary
        at, spaces, fresh = 0, int(vocabulary.scheme.prepends), self._may_prefix
        pieces = []
        for token_id, offset in zip(self._ids, self._offsets, strict=True):
            added = vocabulary.added.get(token_id)
            piece = None if added is None else self._written(added, expected, at)
            prefixed = 0
            if piece is None:
                prefixed = int(fresh and expected[at : at + 1] not in (b"", _SPACE))
                options = self._options(token_id, offset)
                fits = (o for o in options if o and _fits(o, expected, at, prefixed))
                piece = next(fits, None)
                fresh = False
            else:
                fresh = vocabulary.scheme.prefix == "always"
            if piece is None:
                return None
            pieces.append(piece)
            at += len(piece) - prefixed
            spaces += prefixed
        return (pieces, spaces) if at == len(expected) else None

    def _options(self, token_id: int, offset: tuple[int, int]) -> list[bytes]:
        """What an ordinary token may stand for here."""
        vocabulary = self._vocabulary
        options = [vocabulary.pieces[token_id]]
        if token_id in vocabulary.literal:
            options.append(vocabulary.literal[token_id])
        if token_id in vocabulary.unknown:
            text = self._text[slice(*offset)]
            plain = vocabulary.scheme.undo(text)
            options = [plain, _SPACE + plain, vocabulary.scheme.undo(vocabulary.normalise(text))]
        return options

    def _written(self, added: Added, expected: bytes, at: int) -> bytes | None:
        """An added token that is found after the normaliser, as it stands in `expected`."""
        if not added.normalised:
            return None
        undo = self._vocabulary.scheme.undo
        for form in (undo(added.content), undo(self._vocabulary.normalise(added.content))):
            left, right = rb"\s*" * added.left, rb"\s*" * added.right
            if found := re.compile(left + re.escape(form) + right).match(expected, at):
                return found[0]
        return None

    def _place_groups(self, aligned: Aligned, pieces: Sequence[bytes]) -> None:
        """Tokens that share characters form a group; a group that spells its characters exactly,
        but for a space put before the segment, has a place in the text, any other has none."""
        lengths = (len(c.encode()) for c in self._text[self._part.start : self._part.end])
        to_byte = list(accumulate(lengths, initial=self._base))
        n = 0
        while n < len(pieces):
            start, end = self._offsets[n]
            first, n = n, n + 1
            while n < len(pieces) and self._offsets[n][0] < end:
                end = max(end, self._offsets[n][1])
                n += 1
            group, raw = pieces[first:n], self._text[start:end].encode()
            joined = b"".join(group)
            if joined == raw or (first == 0 and joined == _SPACE + raw):
                _place(aligned, group, to_byte[start - self._part.start], len(joined) - len(raw))
            else:
                aligned.pieces += group
                aligned.starts += [NO_OFFSET] * len(group)
                aligned.ends += [NO_OFFSET] * len(group)


def _fits(piece: bytes, expected: bytes, at: int, prefixed: int) -> bool:
    """True when `expected` goes on with `piece`, the space put before it not counted."""
    if prefixed:
        return piece[:1] == _SPACE and expected.startswith(piece[1:], at)
    return expected.startswith(piece, at)


def _differ(aligned: Aligned, expected: bytes, joined: bytes) -> None:
    """Note how the ids differ from the text: some of it left out, or otherwise."""
    lost, at = bytearray(), 0
    for byte in expected:
        if at < len(joined) and joined[at] == byte:
            at += 1
        else:
            lost.append(byte)
    if at == len(joined):
        aligned.lost += bytes(lost)
    else:
        aligned.exact = False
