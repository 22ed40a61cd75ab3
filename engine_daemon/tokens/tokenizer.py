"""What a tokenizer is to this process: a small protocol and the values it gives back.

Knows no tokenizer library, no files and no sockets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine_daemon.protocol.pieces import PieceTable


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be tokenised.

    `chat`: the text comes from a chat template, which writes the special tokens it wants itself,
    so the tokenizer adds none. `specials` false: text that looks like a special token stays text;
    in a chat that holds for the character ranges in `quoted` only, the user's words. `notes`: what
    is to be said of it already.
    """

    text: str
    chat: bool = False
    specials: bool = True
    quoted: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokenised:
    """The ids of a text and what each stands for; lists with one entry a token.

    `pieces` is what names the token; it contributes that to the text unless `added`. `starts` and
    `ends` are byte offsets into the text, `NO_OFFSET` where there is no one-to-one mapping.
    `normalised` is what the tokenizer made of the text, None when it left it alone. `notes` say in
    plain words what a person might not expect. `ms`: text → ids alone.
    """

    ids: list[int]
    pieces: list[bytes]
    special: list[bool]
    added: list[bool]
    starts: list[int]
    ends: list[int]
    ms: float
    normalised: bytes | None = None
    notes: list[str] = field(default_factory=list)


class Tokenizer(Protocol):
    """A tokenizer with the chat template that belongs to it."""

    tokenizer_id: str
    context_length: int | None

    def table(self) -> PieceTable:
        """Bytes of every id."""
        ...

    def least(self, text: str) -> int:
        """A number that the tokens of `text` cannot be fewer than, known at once."""
        ...

    def chat(self, system: str | None, user: str, *, specials: bool) -> Source:
        """The chat template applied to one user message. InspectError where that cannot be."""
        ...

    def converse(self, messages: Sequence[tuple[str, str]], *, specials: bool) -> Source:
        """The chat template applied to (role, content) messages. InspectError as above."""
        ...

    def tokenise(self, source: Source) -> Tokenised:
        """Text → ids. InspectError where that cannot be."""
        ...
