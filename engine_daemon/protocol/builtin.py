"""The built-in vocabulary of the scripted engine: which id is which piece.

Tokens process and scripted backend agree by this table alone. Knows neither how text is cut into
pieces nor how the engine chooses among them.
"""

from itertools import chain
from typing import Final

NAME: Final = "scripted"
TOKENIZER_ID: Final = "builtin-1"
"""Changes with the table below: ids in a recording belong to one table."""
CONTEXT_LENGTH: Final = 131_072

EOS: Final = 256
BOS: Final = 257
SPECIALS: Final[dict[int, bytes]] = {EOS: b"<|end|>", BOS: b"<|start|>"}
"""Ids that name themselves so and contribute no text."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "opener": tuple("The A It They We This Each Every Some One When Then".split()),
    "determiner": tuple("the a its their this that each every some one another no any".split()),
    "pronoun": tuple("it they we he she you nobody everyone".split()),
    "adjective": tuple(
        "small large quiet bright slow fast old new long short deep cold warm dark clear narrow "
        "heavy light empty full hidden strange simple patient careful distant early late broken "
        "golden silver green blue red white black gentle sharp steady familiar ancient final "
        "first second last single double open closed local shared".split()
    ),
    "noun": tuple(
        "river city house garden window door road bridge mountain valley forest tree leaf bird "
        "fish horse dog cat child woman man friend stranger teacher doctor sailor farmer baker "
        "king queen letter book page word story song picture map clock machine engine signal "
        "number question answer reason idea memory dream voice silence light shadow fire water "
        "stone wind rain snow storm morning evening night summer winter year day hour moment "
        "table chair room wall floor ceiling lamp mirror box key market street station train ship "
        "harbour island sea shore star moon sun sky cloud field path corner model token step "
        "queue process memory cache session server network kernel thread file log line point "
        "value result error test".split()
    ),
    "verb": tuple(
        "is was has had sees saw finds found keeps kept takes took gives gave makes made holds "
        "held follows followed opens opened closes closed crosses crossed reads wrote writes "
        "hears heard knows knew remembers forgets carries carried waits waited for builds built "
        "leaves left reaches reached passes passed turns turned moves moved becomes became "
        "brings brought shows showed needs needed counts counted measures measured".split()
    ),
    "adverb": tuple(
        "slowly quickly quietly again never always often once soon together alone almost only "
        "now there here away back still already".split()
    ),
    "preposition": tuple(
        "of in on at by with from to into over under between behind beside through across "
        "after before without about near toward along".split()
    ),
    "conjunction": tuple("and but or because while until although so as".split()),
}
"""Words by their place in a sentence. Each is a piece with a space before it."""


def _pieces() -> list[bytes]:
    """Bytes, specials, words; a word that stands in two classes is one piece."""
    words = dict.fromkeys(chain.from_iterable(WORDS.values()))
    single = [bytes([value]) for value in range(256)]
    return [*single, *SPECIALS.values(), *(b" " + word.encode() for word in words)]


PIECES: Final[tuple[bytes, ...]] = tuple(_pieces())
"""Piece of every id: 0-255 the bytes, then specials, then words."""
VOCABULARY: Final = len(PIECES)
