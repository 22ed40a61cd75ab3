"""What a person might not expect of a tokenised prompt, in plain words.

Knows the figures it is given; decides nothing about ids.
"""

from collections import Counter
from collections.abc import Sequence

from engine_daemon.tokens.align import Aligned


def added(first: Sequence[str], last: Sequence[str], bos: str | None) -> list[str]:
    """Tokens that the tokenizer put before and after the prompt."""
    notes = []
    if first:
        role = " (BOS, beginning of sequence)" if list(first) == [bos] else ""
        notes.append(f"the tokenizer added {_names(first)}{role} before the prompt")
    if last:
        notes.append(f"the tokenizer added {_names(last)} after the prompt")
    return notes


def twice(name: str) -> str:
    """The prompt begins with a special token of its own and gets the same one again."""
    return f"the prompt begins with {name} twice: it is written there and the tokenizer adds one"


def specials(names: Sequence[str]) -> list[str]:
    """Written special tokens that became special ids."""
    return [f"special tokens in the prompt: {_names(names)}"] if names else []


def typed(names: Sequence[str]) -> list[str]:
    """Special tokens in what a person typed into a chat."""
    if not names:
        return []
    return [f"the message itself contains {_names(names)}; --no-specials keeps that as text"]


def unknown(names: Sequence[str]) -> list[str]:
    """Tokens that stand for text which the vocabulary lacks."""
    if not names:
        return []
    return [f"the model has no token for some of the text and reads it as {_names(names)}"]


def changes(aligned: Aligned, normalizers: Sequence[str]) -> list[str]:
    """What normaliser and pre-tokeniser did to the text."""
    notes = []
    if aligned.prefixed:
        often = "" if aligned.prefixed == 1 else f" in {aligned.prefixed:,} places"
        notes.append(f"the tokenizer put a space before the text{often}; it is part of the tokens")
    if aligned.lost:
        notes.append(
            f"the tokenizer has no token for {_bytes(aligned.lost)} of the text and leaves that out"
        )
    if not aligned.exact:
        notes.append(
            "this tokenizer cannot be undone exactly: what is shown is what its tokens stand for"
        )
    elif aligned.changed and not aligned.lost:
        how = f" ({', '.join(normalizers)})" if normalizers else ""
        notes.append(f"the tokenizer changed the text{how} before cutting it up")
    return notes


def _names(names: Sequence[str]) -> str:
    counted = Counter(names).items()
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counted)


def _bytes(lost: bytes) -> str:
    shown = lost[:4].hex(" ").upper() + (" …" if len(lost) > 4 else "")
    return f"{len(lost):,} byte{'s' if len(lost) != 1 else ''} ({shown})"
