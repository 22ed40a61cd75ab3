"""`engine_daemon.tokens.quoting`: a user's special tokens stay text, a template's do not."""

import re
from functools import cache

import pytest
from hypothesis import given

from engine_daemon.errors import InspectError
from engine_daemon.tokens import quoting
from engine_daemon.tokens.hf import HfTokenizer
from engine_daemon.tokens.settings import Settings
from tests.tokens import made
from tests.tokens.test_hf import spelled, texts

TEMPLATE = "{% for m in messages %}<|tool|>{{ m.role }}\n{{ m.content | trim }}</s>{% endfor %}<s>"
allowed = texts.filter(lambda text: not re.search("[\U00100000-\U0010fffd]", text))
SPECIAL = quoting.pattern(made.SPECIALS)
KINDS = [kind for kind in made.KINDS if kind.name != "no fallback"]


@cache
def chatty(name: str) -> HfTokenizer:
    return HfTokenizer(made.raw(name), Settings({"bos_token": "<s>"}, TEMPLATE, None))


def rendered(user: str) -> str:
    return f"<|tool|>user\n{user.strip()}</s><s>"


def test_the_longest_special_wins() -> None:
    assert quoting.pattern(["<a", "<a>", ""]).findall("<a><a") == ["<a>", "<a"]
    assert quoting.pattern([]).findall("anything") == []


@given(text=allowed)
def test_marks_come_off_again(text: str) -> None:
    plain, quoted = quoting.unmark(quoting.mark(text, SPECIAL))
    assert plain == text
    assert [plain[a:b] for a, b in quoted] == SPECIAL.findall(text)


def test_marks_that_a_template_separated_are_dropped() -> None:
    marked = quoting.mark("a <s> b", SPECIAL)
    assert quoting.unmark(marked[:4]) == ("a <", ())
    assert quoting.unmark(marked[4:]) == ("s> b", ())


def test_text_with_characters_like_the_marks_is_refused() -> None:
    with pytest.raises(InspectError) as caught:
        quoting.mark("\U00100007", SPECIAL)
    assert caught.value.code == "bad_prompt"


@given(text=allowed)
def test_stand_ins_come_off_again(text: str) -> None:
    stand_ins = quoting.StandIns(made.SPECIALS)
    put = stand_ins.put(text, ())
    assert not SPECIAL.search(put)
    assert put.translate(dict(stand_ins.written)) == text


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
@given(user=allowed)
def test_only_the_templates_own_specials_become_special(kind: made.Kind, user: str) -> None:
    if kind.name.startswith("Unigram"):  # it pieces <unk> together from plain text
        user = user.replace("<unk>", "")
    tokenizer = chatty(kind.name)
    source = tokenizer.chat(None, user, specials=False)
    assert source.text == rendered(user)
    tokenised = tokenizer.tokenise(source)
    special = [
        piece
        for piece, is_special in zip(tokenised.pieces, tokenised.special, strict=True)
        if is_special
    ]
    assert special == [b"<|tool|>", b"</s>", b"<s>"]
    inner = kind.left(f"user\n{user.strip()}", False)
    assert spelled(tokenised) == f"<|tool|>{inner}</s><s>".encode()


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_without_specials_in_it_a_message_gives_the_same_ids_either_way(kind: made.Kind) -> None:
    tokenizer = chatty(kind.name)
    one, other = (
        tokenizer.tokenise(tokenizer.chat("Be brief.", "the  quick é fox", specials=specials))
        for specials in (True, False)
    )
    assert one.ids == other.ids
    assert one.pieces == other.pieces
    assert (one.starts, one.ends) == (other.starts, other.ends)


def test_places_in_the_text_are_those_of_the_text_as_written() -> None:
    tokenizer = chatty("byte level")
    source = tokenizer.chat(None, "a <s> b", specials=False)
    tokenised = tokenizer.tokenise(source)
    raw = source.text.encode()
    places = zip(tokenised.starts, tokenised.ends, strict=True)
    assert [raw[a:b] for a, b in places] == tokenised.pieces
