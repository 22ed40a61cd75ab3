"""The vocabulary that the scripted engine and the built-in tokenizer share: how many ids, and which
of them mean something. What the other ids spell is decided in `engine_daemon.tokens.builtin`.
"""

from typing import Final

BYTE_COUNT: Final = 256
"""Ids 0 … 255 are the 256 bytes."""
EOS_ID: Final = 256
FIRST_SPECIAL_ID: Final = 256
FIRST_WORD_ID: Final = 260
"""From here to the end every id is a common English word with a space before it."""
VOCABULARY: Final = 512
CONTEXT_LENGTH: Final = 1_000_000
"""Positions; far more than anybody scripts, so that long sessions can be tried."""
