"""A prompt as a person gave it → the event `PromptSet`, or an `InspectError` that says why not.

Knows no tokenizer library and no sockets; what a tokenizer does comes through `Tokenizer`.
"""

import time
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.protocol.events import PromptSet
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.tokens.given import from_ids
from engine_daemon.tokens.tokenizer import Source, Tokenised, Tokenizer

_PIECE_LIMIT: Final = 0xFFFF
"""Bytes of one piece in the columns of `PromptSet`."""
_LONE_SPACE: Final = (
    "the prompt ends in a token that is a single space; most models continue badly after one, "
    "because a word's own token begins with its space"
)


def encode(tokenizer: Tokenizer, prompt: PromptSpec) -> PromptSet:
    """Tokenise `prompt`; the event belongs to branch 0, step 0, and its seed is not set yet."""
    if prompt.ids is not None:
        tokenised = from_ids(tokenizer.table(), prompt.ids)
        text = b"".join(tokenised.pieces)
        _check(tokenised, "")
    else:
        source = _source(tokenizer, prompt)
        _check_size(tokenizer, source.text)
        tokenised = tokenizer.tokenise(source)
        text = source.text.encode()
        _check(tokenised, source.text)
    warnings = [*tokenised.notes, _LONE_SPACE] if _ends_in_space(tokenised) else tokenised.notes
    return PromptSet(
        t_ns=time.monotonic_ns(),
        wall_ns=time.time_ns(),
        text=text,
        normalised=tokenised.normalised,
        template=prompt.template,
        seed=0,
        warnings=warnings,
        tokenize_ms=tokenised.ms,
        ids=pack_ints("I", tokenised.ids),
        special=pack_ints("B", tokenised.special),
        added=pack_ints("B", tokenised.added),
        starts=pack_ints("I", tokenised.starts),
        ends=pack_ints("I", tokenised.ends),
        piece_len=pack_ints("H", map(len, tokenised.pieces)),
        pieces=b"".join(tokenised.pieces),
    )


def _source(tokenizer: Tokenizer, prompt: PromptSpec) -> Source:
    if prompt.messages is not None:
        messages = [(m.role, _decode(m.content, "a message")) for m in prompt.messages]
        return tokenizer.converse(messages, specials=prompt.specials)
    text = _decode(prompt.text, "the prompt")
    system = None if prompt.system is None else _decode(prompt.system, "the system message")
    if prompt.template:
        return tokenizer.chat(system, text, specials=prompt.specials)
    if system is not None:
        raise InspectError(
            "a system message needs the chat template", "Add --chat", code="bad_prompt"
        )
    return Source(text, specials=prompt.specials)


def _decode(text: bytes, what: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InspectError(
            f"{what} is not UTF-8: byte 0x{text[error.start]:02x} at offset {error.start:,}",
            "Convert it first, for example: iconv -f latin1 -t utf-8 FILE",
            code="bad_prompt",
        ) from None


def _check_size(tokenizer: Tokenizer, text: str) -> None:
    """Refuse at once what would take seconds to tokenise and cannot fit. The exact check is the
    hub's, which knows the limits of daemon and session too."""
    limit, least = tokenizer.context_length, tokenizer.least(text)
    if limit is not None and least > limit:
        raise InspectError(
            f"the prompt has at least {least:,} tokens; the model's context holds {limit:,}",
            "Shorten it, or use a model with a longer context",
            code="prompt_too_long",
        )


def _check(tokenised: Tokenised, text: str) -> None:
    if not tokenised.ids:
        raise InspectError(
            "the tokenizer has no token for anything in the prompt"
            if text
            else "the prompt is empty: there is no token to start from",
            "Type some text; a single letter will do",
            code="empty_prompt",
        )
    longest = max(map(len, tokenised.pieces))
    if longest > _PIECE_LIMIT:
        raise InspectError(
            f"one token stands for {longest:,} bytes of the prompt, the limit is {_PIECE_LIMIT:,}",
            "Break up the long run of white space or of characters the model does not know",
            code="bad_prompt",
        )


def _ends_in_space(tokenised: Tokenised) -> bool:
    for piece, added in zip(reversed(tokenised.pieces), reversed(tokenised.added), strict=True):
        if not added:
            return piece == b" "
    return False
