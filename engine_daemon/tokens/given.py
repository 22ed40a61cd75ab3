"""A prompt that is tokenised already: ids → the same columns a text would give.

Knows the table of pieces; no tokenizer library.
"""

from itertools import accumulate

from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.tokens.tokenizer import Tokenised


def from_ids(table: PieceTable, packed: bytes) -> Tokenised:
    """The tokens of a u32 column; specials count as written in the prompt. Ids that a padded
    vocabulary has and the tokenizer does not are named `<id>`; whether the model has them is
    checked where the model is known."""
    try:
        ids = unpack_ints("I", packed)
    except ValueError:
        raise InspectError("the prompt's ids are no u32 column", code="bad_prompt") from None
    pieces = [table.piece(token_id) for token_id in ids]
    ends = list(accumulate(map(len, pieces)))
    unknown = sorted({i for i in ids if i >= len(table)})
    notes = [f"the tokenizer has no id {', '.join(map(str, unknown[:8]))}"] if unknown else []
    return Tokenised(
        ids=ids,
        pieces=pieces,
        special=[table.is_special(token_id) for token_id in ids],
        added=[False] * len(ids),
        starts=[0, *ends[:-1]] if ends else [],
        ends=ends,
        ms=0.0,
        notes=notes,
    )
