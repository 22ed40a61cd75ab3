"""Conditions and watched texts → token ids: every id whose bytes are that text.

Knows the table of pieces and the tokenizer; not what a condition means.
"""

from collections.abc import Sequence

from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import TokenIds
from engine_daemon.tokens.tokenizer import Source, Tokenizer

_MOST_NAMED = 8
_A_PIECE = "Use one of the pieces"


def resolve_all(
    tokenizer: Tokenizer, table: PieceTable, sources: Sequence[str], watch: Sequence[bytes]
) -> tuple[list[list[TokenIds]], list[TokenIds]]:
    """The tokens that each condition speaks of, and those to watch. InspectError for a condition
    that is none, and for a text that is no single token."""
    # The parser is loaded when somebody has a condition: it costs 0.1 s.
    conditions: list[list[TokenIds]] = []
    if sources:
        from engine_daemon.conditions.nodes import literals
        from engine_daemon.conditions.parser import parse

        conditions = [
            [
                resolve(tokenizer, table, text, f"{_A_PIECE}, or text~ for text of any length")
                for text in literals(parse(source))
            ]
            for source in sources
        ]
    return conditions, [resolve(tokenizer, table, text) for text in watch]


def resolve(tokenizer: Tokenizer, table: PieceTable, text: bytes, hint: str = _A_PIECE) -> TokenIds:
    """The tokens whose bytes are `text`; InspectError that lists its pieces when there is none,
    with this `hint`."""
    ids = [token_id for token_id, piece in enumerate(table.pieces) if piece == text]
    if ids:
        return TokenIds(text=text, ids=pack_ints("I", ids))
    shown = _quoted(text)
    pieces = _pieces(tokenizer, text)
    if len(pieces) < 2:
        raise InspectError(
            f"no token of this model is {shown}",
            "Look at the tokens of a prompt for how they are written",
            code="no_token",
        )
    named = " ".join(map(_quoted, pieces[:_MOST_NAMED]))
    more = " …" if len(pieces) > _MOST_NAMED else ""
    raise InspectError(
        f"{shown} is no single token; its pieces are {named}{more}",
        hint,
        code="no_token",
    )


def _pieces(tokenizer: Tokenizer, text: bytes) -> list[bytes]:
    try:
        tokenised = tokenizer.tokenise(Source(text.decode(), specials=False))
    except (UnicodeDecodeError, InspectError):
        return []
    both = zip(tokenised.pieces, tokenised.added, strict=True)
    return [piece for piece, added in both if not added]


def _quoted(text: bytes) -> str:
    from engine_daemon.conditions.quoting import quote

    return quote(text)
