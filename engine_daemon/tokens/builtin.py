"""The scripted engine's tokenizer: known words become one id, everything else its bytes.

Pure Python, synthetic and labelled so. Which id is which piece stands in
`engine_daemon.protocol.builtin`; nothing is normalised or added here.
"""

import re
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from engine_daemon.protocol.builtin import BOS, CONTEXT_LENGTH, EOS, PIECES, SPECIALS, TOKENIZER_ID
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.tokens.tokenizer import Source, Tokenised

_WORD_IDS: Final = {piece: i for i, piece in enumerate(PIECES) if len(piece) > 1}
_CHUNK: Final = re.compile(rb" [A-Za-z]+|[^ ]+| ")
_SPECIAL: Final = re.compile(b"(" + b"|".join(map(re.escape, SPECIALS.values())) + b")")


class BuiltinTokenizer:
    """The built-in vocabulary as a tokenizer."""

    tokenizer_id = TOKENIZER_ID
    context_length: int | None = CONTEXT_LENGTH

    def table(self) -> PieceTable:
        """Bytes of every id."""
        return PieceTable(TOKENIZER_ID, PIECES, [i in SPECIALS for i in range(len(PIECES))])

    def chat(self, system: str | None, user: str, *, specials: bool) -> Source:
        """A chat in this vocabulary's own specials."""
        opening, closing = SPECIALS[BOS].decode(), SPECIALS[EOS].decode()
        text, quoted = "", []
        for role, content in (("system", system), ("user", user)):
            if content is not None:
                text += f"{opening}{role}\n"
                quoted.append((len(text), len(text) + len(content)))
                text += f"{content}{closing}\n"
        text += f"{opening}assistant\n"
        return Source(text, chat=True, specials=specials, quoted=tuple(quoted))

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
            special=[i in SPECIALS for i in ids],
            added=[False] * len(ids),
            starts=[0, *ends[:-1]] if ends else [],
            ends=ends,
            ms=ms,
        )


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
        if known is None or known in SPECIALS:
            ids += chunk
        else:
            ids.append(known)
    return ids
