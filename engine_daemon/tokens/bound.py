"""How many tokens a text gives at the very least, without tokenising it.

A prompt of megabytes that cannot fit into the model is refused at once. Knows the vocabulary only;
where a normaliser or pre-tokeniser may drop text there is no bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine_daemon.tokens.align import Vocabulary
from engine_daemon.tokens.pieces import Pipeline, Scheme

_KEEPING: Final = {"ByteLevel", "Metaspace", "Digits"}
"""Pre-tokenisers that cut text up and drop none of it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """`longest`: bytes that one token stands for at most; `missing`: bytes that none stands for."""

    scheme: Scheme
    longest: int
    missing: bytes

    def least(self, text: str) -> int:
        """No fewer tokens than this come of `text`."""
        return len(self.scheme.undo(text).translate(None, self.missing)) // self.longest


def bound_of(pipeline: Pipeline, vocabulary: Vocabulary) -> Bound | None:
    """The bound for a vocabulary; None where text may shrink or one token take any amount."""
    scheme = vocabulary.scheme
    greedy = any(token.left or token.right for token in vocabulary.added.values())
    whole = scheme.byte_level or pipeline.model.byte_fallback
    if greedy or not whole or not _keeps_all(pipeline):
        return None
    longest = max(map(len, vocabulary.pieces), default=0)
    missing = _missing(vocabulary.pieces) if scheme.byte_level else b""
    return Bound(scheme, longest, missing) if longest else None


def _keeps_all(pipeline: Pipeline) -> bool:
    """True when text is cut up, and spaces are put before it or replaced, and that is all."""
    spaces = {"String": " "}
    return all(
        part.get("type") == "Prepend"
        or (part.get("type") == "Replace" and part.get("pattern") == spaces)
        for part in pipeline.normalizers
    ) and all(
        part.get("type") in _KEEPING
        or (part.get("type") == "Split" and part.get("behavior") != "Removed")
        for part in pipeline.pre_tokenizers
    )


def _missing(pieces: Sequence[bytes]) -> bytes:
    single = {piece for piece in pieces if len(piece) == 1}
    return b"".join(byte for byte in (bytes([i]) for i in range(256)) if byte not in single)
