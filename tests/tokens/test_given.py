"""Prompts that are ids already, and conversations: the same `PromptSet` as their text gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import pack_ints, unpack_ints
from engine_daemon.protocol.values import ChatMessage, PromptSpec
from engine_daemon.tokens.builtin import PIECES, BuiltinTokenizer
from engine_daemon.tokens.encode import encode
from tests.tokens.test_encode import tokenizer

BUILTIN = BuiltinTokenizer()


@given(st.text("ab of life<|end>é\n", min_size=1, max_size=30))
def test_ids_give_what_their_text_gives(text: str) -> None:
    typed = encode(BUILTIN, PromptSpec(text=text.encode()))
    ready = encode(BUILTIN, PromptSpec(text=b"", ids=typed.ids))
    for name in ("text", "ids", "special", "added", "starts", "ends", "pieces", "piece_len"):
        assert getattr(ready, name) == getattr(typed, name), name


def test_ids_of_bytes_that_are_no_text_stay_as_they_are() -> None:
    ready = encode(BUILTIN, PromptSpec(text=b"", ids=pack_ints("I", [0xE2, 65])))
    assert ready.text == b"\xe2A"


def test_ids_that_the_tokenizer_does_not_have_are_named_in_a_warning() -> None:
    ready = encode(BUILTIN, PromptSpec(text=b"", ids=pack_ints("I", [65, len(PIECES) + 3])))
    assert any(str(len(PIECES) + 3) in warning for warning in ready.warnings)
    assert list(ready.special) == [0, 1]


@pytest.mark.parametrize("ids", [b"", b"\x01\x02"])
def test_no_ids_and_half_an_id_are_refused(ids: bytes) -> None:
    with pytest.raises(InspectError):
        encode(BUILTIN, PromptSpec(text=b"", ids=ids))


def test_a_conversation_goes_through_the_template() -> None:
    messages = [
        ChatMessage(role="system", content=b"Be brief."),
        ChatMessage(role="user", content=b"Why?"),
        ChatMessage(role="assistant", content=b"Because."),
        ChatMessage(role="user", content=b"<|end|> Why?"),
    ]
    spec = PromptSpec(text=b"", template=True, messages=messages)
    made = encode(BUILTIN, spec)
    assert made.text == (
        b"<|system|>Be brief.<|end|><|user|>Why?<|end|><|assistant|>Because.<|end|>"
        b"<|user|><|end|> Why?<|end|><|assistant|>"
    )
    end = PIECES.index(b"<|end|>")
    assert unpack_ints("I", made.ids).count(end) == 5
    quoted = encode(BUILTIN, PromptSpec(text=b"", template=True, messages=messages, specials=False))
    assert quoted.text == made.text
    assert unpack_ints("I", quoted.ids).count(end) == 4


def test_the_model_s_own_template_gets_every_message() -> None:
    messages = [ChatMessage(role="tool", content=b"a"), ChatMessage(role="user", content=b"b")]
    spec = PromptSpec(text=b"", template=True, messages=messages)
    made = encode(tokenizer("byte level"), spec)
    assert made.text == b"<|tool|>tool: a</s><|tool|>user: b</s>"


def test_one_user_message_is_what_chat_gives() -> None:
    one = PromptSpec(text=b"", template=True, messages=[ChatMessage(role="user", content=b"hi")])
    assert encode(BUILTIN, one).ids == encode(BUILTIN, PromptSpec(text=b"hi", template=True)).ids


def test_a_message_that_is_no_utf8_is_refused() -> None:
    bad = PromptSpec(text=b"", template=True, messages=[ChatMessage(role="user", content=b"\xff")])
    with pytest.raises(InspectError, match="UTF-8"):
        encode(BUILTIN, bad)
