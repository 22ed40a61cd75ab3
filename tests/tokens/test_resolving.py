"""Texts → ids: every id with those bytes, and what is said of a text that is none."""

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.worker import Resolve, Resolved
from engine_daemon.tokens.builtin import PIECES, BuiltinTokenizer
from engine_daemon.tokens.resolving import resolve, resolve_all
from engine_daemon.tokens.service import Service

TOKENIZER = BuiltinTokenizer()
TABLE = TOKENIZER.table()


def test_every_id_whose_bytes_are_that_text() -> None:
    twice = PieceTable("t", [b"a", b"b", b"a", b"<a>"], [False, False, True, True])
    found = resolve(TOKENIZER, twice, b"a")
    assert found.text == b"a"
    assert unpack_ints("I", found.ids) == [0, 2]


def test_single_bytes_and_specials_are_tokens_too() -> None:
    assert unpack_ints("I", resolve(TOKENIZER, TABLE, b"\xe2").ids) == [0xE2]
    assert unpack_ints("I", resolve(TOKENIZER, TABLE, b"<|end|>").ids) == [256]


def test_a_text_of_several_tokens_names_them() -> None:
    with pytest.raises(InspectError) as caught:
        resolve(TOKENIZER, TABLE, b" of life\n")
    assert caught.value.code == "no_token"
    assert '" of" " life" "\\n"' in caught.value.message


def test_long_texts_are_cut_and_bytes_that_are_no_text_have_no_pieces() -> None:
    with pytest.raises(InspectError, match="…"):
        resolve(TOKENIZER, TABLE, b"abcdefghijkl")
    with pytest.raises(InspectError, match="no token of this model"):
        resolve(TOKENIZER, TABLE, b"\xff\xfe")


def test_conditions_and_watched_texts_together() -> None:
    sources = ['p(" of")>0.1 and token!=" life"', "entropy>3"]
    conditions, watch = resolve_all(TOKENIZER, TABLE, sources, [b" the"])
    assert [[literal.text for literal in one] for one in conditions] == [[b" of", b" life"], []]
    assert [PIECES[unpack_ints("I", one.ids)[0]] for one in watch] == [b" the"]


def test_the_service_answers_or_says_why_not() -> None:
    service = Service()
    early = service.answer(Resolve(ask=1, sources=["entropy>3"]))
    assert isinstance(early, Resolved)
    assert early.code == "no_engine"
    service._tokenizer, service._table = TOKENIZER, TABLE
    wrong = service.answer(Resolve(ask=2, sources=["entropy>>3"]))
    assert isinstance(wrong, Resolved)
    assert (wrong.ask, wrong.code) == (2, "bad_condition")
    good = service.answer(Resolve(ask=3, sources=["entropy>3"], watch=[b" of"]))
    assert isinstance(good, Resolved)
    assert (good.code, good.conditions, len(good.watch)) == ("", [[]], 1)
