"""The scripted engine's tokenizer: known words become one id, everything else its bytes.

Pure Python, synthetic and labelled so. Its numbers stand in `engine_daemon.protocol.synthetic`,
which the scripted engine reads too; nothing is normalised or added here.
"""

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.synthetic import (
    BYTE_COUNT,
    CONTEXT_LENGTH,
    FIRST_SPECIAL_ID,
    FIRST_WORD_ID,
    VOCABULARY,
)
from engine_daemon.tokens.roles import check_spelling
from engine_daemon.tokens.tokenizer import Source, Tokenised

_WORDS: Final = b"""
the of and to in is it that was for on are with as at be this have from or one had by but not what
all were we when your can there use an each which she do how their if will up other about out many
then them these so some her would make like him into time has look two more write go see number no
way could people my than first water been call who its now find long down day did get come made may
part over new sound take only little work know place year live me back give most very after thing
our just name good sentence man think say great where help through much before line right too mean
old any same tell boy follow came want show also around form three small set put end does another
well large must big even such because turn here why ask went men read need land different home us
move try kind hand picture again change off play spell air away animal house point page letter
mother answer found study still learn should world high every near add food between own below
country plant last school father keep tree never start city earth eye light thought head under
story saw left few while along might close something seem next hard open example begin life always
those both paper together got group often run important until children side feet river carry state
book hear stop without second
""".split()
_SPECIALS: Final = (b"<|end|>", b"<|system|>", b"<|user|>", b"<|assistant|>")

PIECES: Final = (
    *(bytes([value]) for value in range(BYTE_COUNT)),
    *_SPECIALS,
    *(b" " + word for word in _WORDS),
)
"""Piece of every id."""
TOKENIZER_ID: Final = hashlib.sha256(b"\0".join(PIECES)).hexdigest()
_LONGEST: Final = max(map(len, PIECES))
_WORD_IDS: Final = {piece: i for i, piece in enumerate(PIECES) if len(piece) > 1}
_CHUNK: Final = re.compile(rb" [A-Za-z]+|[^ ]+| ")
_SPECIAL: Final = re.compile(b"(" + b"|".join(map(re.escape, _SPECIALS)) + b")")


class BuiltinTokenizer:
    """The built-in vocabulary as a tokenizer."""

    tokenizer_id = TOKENIZER_ID
    context_length: int | None = CONTEXT_LENGTH

    def table(self) -> PieceTable:
        """Bytes of every id."""
        return PieceTable(TOKENIZER_ID, PIECES, list(map(_is_special, range(VOCABULARY))))

    def least(self, text: str) -> int:
        """No fewer tokens than this come of `text`."""
        return len(text.encode()) // _LONGEST

    def chat(self, system: str | None, user: str, *, specials: bool) -> Source:
        """A chat in this vocabulary's own specials."""
        both = (("system", system), ("user", user))
        messages = [(role, text) for role, text in both if text is not None]
        return self.converse(messages, specials=specials)

    def converse(self, messages: Sequence[tuple[str, str]], *, specials: bool) -> Source:
        """A conversation in this vocabulary's own specials."""
        check_spelling(messages, ())
        text, quoted = "", []
        for role, content in messages:
            text += f"<|{role}|>"
            quoted.append((len(text), len(text) + len(content)))
            text += f"{content}<|end|>"
        return Source(text + "<|assistant|>", chat=True, specials=specials, quoted=tuple(quoted))

    def tokenise(self, source: Source) -> Tokenised:
        """Specials where they may be, then known words, then bytes."""
        started = time.perf_counter()
        ids: list[int] = []
        for part, specials in _parts(source):
            for run in _SPECIAL.split(part) if specials else [part]:
                ids += _encode(run, specials=specials)
        ms = (time.perf_counter() - started) * 1e3
        pieces = [PIECES[i] for i in ids]
        ends = list(accumulate(map(len, pieces)))
        return Tokenised(
            ids=ids,
            pieces=pieces,
            special=list(map(_is_special, ids)),
            added=[False] * len(ids),
            starts=[0, *ends[:-1]] if ends else [],
            ends=ends,
            ms=ms,
        )


def _is_special(token_id: int) -> bool:
    return FIRST_SPECIAL_ID <= token_id < FIRST_WORD_ID


def _parts(source: Source) -> Iterator[tuple[bytes, bool]]:
    """The text cut into runs, each with whether written specials in it become special ids."""
    if source.specials or not source.chat:
        yield source.text.encode(), source.specials
        return
    at = 0
    for start, end in source.quoted:
        yield source.text[at:start].encode(), True
        yield source.text[start:end].encode(), False
        at = end
    yield source.text[at:].encode(), True


def _encode(run: bytes, *, specials: bool) -> list[int]:
    if specials and _SPECIAL.fullmatch(run):
        return [_WORD_IDS[run]]
    ids: list[int] = []
    for chunk in _CHUNK.findall(run):
        known = _WORD_IDS.get(chunk)
        if known is None or _is_special(known):
            ids += chunk
        else:
            ids.append(known)
    return ids
