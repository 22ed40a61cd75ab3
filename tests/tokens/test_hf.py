"""`engine_daemon.tokens.hf`: the rule for bytes, for any text and every kind of tokenizer."""

import unicodedata
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine_daemon.errors import InspectError
from engine_daemon.protocol.events import NO_OFFSET
from engine_daemon.tokens.hf import HfTokenizer
from engine_daemon.tokens.settings import Settings
from engine_daemon.tokens.tokenizer import Source, Tokenised
from tests.tokens import made

NAMES = [kind.name for kind in made.KINDS]
NOTHING = Settings(specials={}, template=None, context_length=None)

AWKWARD = [
    "", " ", "  ", " a", "a ", "\0", "\x1b[2J", "\x04", "\r\n", "\u0085", "\u2028",
    "é", "e\u0301", "e\u0301\u0301", "\u0301", "Å", "ﬁ", "①", "한", "\u1112\u1161\u11ab",
    "🙂", "👩‍👩‍👧", "🏳️‍🌈", "\ufeff", "\u200d", "\U0010ffff", "\ue000", "▁", "▁▁a", " ▁ ",
    "<0x0A>", "<0xFF>", "Ġ", "Ċ", "<s", "|>", "Kubernetes", " pods", "東京", "ä" * 9,
]  # fmt: skip
# Python and the tokenizers library are of different versions of Unicode; both have all of 3.2.
old = st.characters(exclude_categories=["Cs", "Cn"]).filter(
    lambda char: unicodedata.ucd_3_2_0.category(char) != "Cn"
)
pieces_of_text = st.one_of(
    st.sampled_from(AWKWARD),
    st.sampled_from(made.SPECIALS),
    st.text(old, max_size=12),
)
texts = st.lists(pieces_of_text, max_size=8).map("".join)


@cache
def tokenizer(name: str) -> HfTokenizer:
    return HfTokenizer(made.raw(name), NOTHING)


def spelled(tokenised: Tokenised) -> bytes:
    return b"".join(
        piece for piece, added in zip(tokenised.pieces, tokenised.added, strict=True) if not added
    )


@pytest.mark.parametrize("kind", made.KINDS, ids=NAMES)
@given(text=texts)
def test_joined_bytes_are_the_prompt_as_the_normaliser_left_it(kind: made.Kind, text: str) -> None:
    tokenised = tokenizer(kind.name).tokenise(Source(text))
    left = made.expected(kind, text).encode()
    assert spelled(tokenised) == left
    assert tokenised.normalised == (None if left == text.encode() else left)


@pytest.mark.parametrize("kind", made.KINDS, ids=NAMES)
@given(text=texts)
def test_places_in_the_text_hold_the_bytes_of_their_token(kind: made.Kind, text: str) -> None:
    tokenised = tokenizer(kind.name).tokenise(Source(text))
    raw, last = text.encode(), 0
    for piece, added, start, end in zip(
        tokenised.pieces, tokenised.added, tokenised.starts, tokenised.ends, strict=True
    ):
        if start == NO_OFFSET:
            assert end == NO_OFFSET
            continue
        assert not added
        assert last <= start <= end <= len(raw)
        assert raw[start:end] in (piece, piece.removeprefix(b" "))
        last = end


@pytest.mark.parametrize("kind", made.KINDS, ids=NAMES)
@given(text=texts)
def test_text_left_alone_has_a_place_for_every_token(kind: made.Kind, text: str) -> None:
    tokenised = tokenizer(kind.name).tokenise(Source(text))
    if tokenised.normalised is None:
        joined = [
            (start, end)
            for added, start, end in zip(
                tokenised.added, tokenised.starts, tokenised.ends, strict=True
            )
            if not added
        ]
        assert all(a[1] == b[0] for a, b in pairwise(joined))
        assert not joined or (joined[0][0], joined[-1][1]) == (0, len(text.encode()))


@pytest.mark.parametrize("kind", made.KINDS, ids=NAMES)
@given(text=texts)
def test_ids_are_the_librarys_own(kind: made.Kind, text: str) -> None:
    tokenised = tokenizer(kind.name).tokenise(Source(text))
    assert tokenised.ids == library(kind.name).encode(text).ids


@cache
def library(name: str) -> Tokenizer:
    return Tokenizer.from_buffer(made.raw(name))


def test_marks_of_images_are_refused_and_can_be_kept_as_text() -> None:
    known = tokenizer("byte level")
    mark = made.SPECIALS[0]
    (mark_id,) = known.tokenise(Source(mark)).ids
    seeing = HfTokenizer(
        made.raw("byte level"),
        Settings(specials={}, template=None, context_length=None, media=frozenset([mark_id])),
    )
    with pytest.raises(InspectError, match="not supported") as caught:
        seeing.tokenise(Source(f"look: {mark}"))
    assert caught.value.code == "not_supported"
    assert mark in caught.value.message
    kept = seeing.tokenise(Source(f"look: {mark}", specials=False))
    assert mark_id not in kept.ids
    assert seeing.tokenise(Source("look")).ids == known.tokenise(Source("look")).ids
