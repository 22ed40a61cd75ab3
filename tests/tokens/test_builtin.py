"""`engine_daemon.tokens.builtin`: the scripted engine's tokenizer."""

from hypothesis import given

from engine_daemon.protocol.synthetic import EOS_ID, FIRST_SPECIAL_ID, FIRST_WORD_ID, VOCABULARY
from engine_daemon.tokens.builtin import PIECES, BuiltinTokenizer
from engine_daemon.tokens.tokenizer import Source
from tests.tokens.test_hf import texts

TOKENIZER = BuiltinTokenizer()


def test_the_vocabulary_is_what_the_engine_counts_on() -> None:
    assert len(PIECES) == VOCABULARY == len(set(PIECES))
    assert list(PIECES[:256]) == [bytes([value]) for value in range(256)]
    assert PIECES[EOS_ID] == b"<|end|>"
    assert all(piece[:1] == b" " and piece[1:].isalpha() for piece in PIECES[FIRST_WORD_ID:])
    table = TOKENIZER.table()
    special = [i for i in range(VOCABULARY) if table.is_special(i)]
    assert special == list(range(FIRST_SPECIAL_ID, FIRST_WORD_ID))


@given(text=texts)
def test_joined_bytes_are_the_prompt(text: str) -> None:
    for specials in (True, False):
        tokenised = TOKENIZER.tokenise(Source(text, specials=specials))
        raw = text.encode()
        assert b"".join(tokenised.pieces) == raw
        assert [raw[a:b] for a, b in zip(tokenised.starts, tokenised.ends, strict=True)] == (
            tokenised.pieces
        )
        assert tokenised.pieces == [PIECES[i] for i in tokenised.ids]
        assert TOKENIZER.least(text) <= len(tokenised.ids)


def test_words_specials_and_bytes() -> None:
    tokenised = TOKENIZER.tokenise(Source("I see the people<|end|> the"))
    assert tokenised.pieces == [b"I", b" see", b" the", b" people", b"<|end|>", b" the"]
    assert tokenised.special == [False, False, False, False, True, False]


def test_specials_may_stay_text() -> None:
    tokenised = TOKENIZER.tokenise(Source("<|end|>", specials=False))
    assert tokenised.pieces == [b"<", b"|", b"e", b"n", b"d", b"|", b">"]


def test_a_chat() -> None:
    source = TOKENIZER.chat("be kind", "say <|end|>", specials=True)
    assert source.text == "<|system|>be kind<|end|><|user|>say <|end|><|end|><|assistant|>"
    safe = TOKENIZER.chat("be kind", "say <|end|>", specials=False)
    assert safe.text == source.text
    assert sum(TOKENIZER.tokenise(source).special) == 6
    assert sum(TOKENIZER.tokenise(safe).special) == 5
