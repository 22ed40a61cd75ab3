"""The scripted engine's tokenizer: 256 bytes, four specials, common English words. Pure Python.

Synthetic and labelled so; knows nothing of tokenizer files. Its numbers stand in
`engine_daemon.protocol.synthetic`, which the scripted engine reads too.
"""

import hashlib
import re
import time
from collections.abc import Iterator
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
from engine_daemon.tokens.tokenizer import Source, Tokenised

_SPECIALS: Final = (b"<|end|>", b"<|system|>", b"<|user|>", b"<|assistant|>")
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
_CHUNK: Final = re.compile(rb" [a-z]+|[^ ]+| ")
_SPECIAL: Final = re.compile(b"(" + b"|".join(map(re.escape, _SPECIALS)) + b")")


class BuiltinTokenizer:
    """Known words become one id, everything else its bytes; nothing is normalised or added."""

    context_length: int | None = CONTEXT_LENGTH

    def __init__(self) -> None:
        pieces = [bytes([i]) for i in range(BYTE_COUNT)]
        pieces += _SPECIALS
        pieces += [b" " + word for word in _WORDS]
        assert len(pieces) == VOCABULARY
        self._pieces = pieces
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self.tokenizer_id = hashlib.sha256(b"\0".join(pieces)).hexdigest()

    def table(self) -> PieceTable:
        """Bytes of every id."""
        special = [_is_special(i) for i in range(len(self._pieces))]
        return PieceTable(self.tokenizer_id, self._pieces, special)

    def chat(self, system: str | None, user: str, *, specials: bool) -> Source:
        """A chat in this tokenizer's own specials."""
        text, quoted = "", []
        for role, content in (("system", system), ("user", user), ("assistant", "")):
            if content is not None:
                text += f"<|{role}|>"
                quoted.append((len(text), len(text) + len(content)))
                text += content
        return Source(text, chat=True, specials=specials, quoted=tuple(quoted))

    def tokenise(self, source: Source) -> Tokenised:
        """Specials where they may be, then known words, then bytes."""
        started = time.perf_counter()
        ids: list[int] = []
        for part, is_text in _parts(source):
            for run in [part] if is_text else _SPECIAL.split(part):
                ids += self._encode(run, special=not is_text)
        ms = (time.perf_counter() - started) * 1e3
        pieces = [self._pieces[i] for i in ids]
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

    def _encode(self, run: bytes, *, special: bool) -> list[int]:
        if special and run in _SPECIALS:
            return [self._ids[run]]
        ids: list[int] = []
        for chunk in _CHUNK.findall(run):
            known = self._ids.get(chunk)
            if known is not None and known >= FIRST_WORD_ID:
                ids.append(known)
            else:
                ids += chunk
        return ids


def _is_special(token_id: int) -> bool:
    return FIRST_SPECIAL_ID <= token_id < FIRST_WORD_ID


def _parts(source: Source) -> Iterator[tuple[bytes, bool]]:
    """The text cut into runs, each with whether specials in it stay text."""
    if source.specials or not source.chat:
        yield source.text.encode(), not source.specials
        return
    at = 0
    for start, end in source.quoted:
        yield source.text[at:start].encode(), False
        yield source.text[start:end].encode(), True
        at = end
    yield source.text[at:].encode(), False
