"""`engine_daemon.tokens.pieces`: which bytes an id stands for."""

from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from engine_daemon.tokens.hf import HfTokenizer
from engine_daemon.tokens.pieces import Pipeline, pieces_of, scheme_of
from engine_daemon.tokens.settings import Settings
from tests.tokens import made

NAMES = [kind.name for kind in made.KINDS]


def scheme(**parts: Any) -> Any:
    model = parts.pop("model", {})
    return scheme_of(msgspec.convert({"model": model, **parts}, Pipeline))


def sequence(key: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", key: list(parts)}


@pytest.mark.parametrize("name", NAMES)
def test_every_piece_is_what_the_librarys_decoder_makes_of_its_id(name: str) -> None:
    library = Tokenizer.from_buffer(made.raw(name))
    table = HfTokenizer(made.raw(name), Settings({}, None, None)).table()
    assert len(table) == library.get_vocab_size()
    for token_id, piece in enumerate(table.pieces):
        decoded = library.decode([token_id], skip_special_tokens=False)
        assert piece.decode(errors="replace") == decoded, (token_id, library.id_to_token(token_id))
        assert table.is_special(token_id) == (library.id_to_token(token_id) in made.SPECIALS)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "no fallback"])
def test_every_byte_has_a_token(name: str) -> None:
    table = HfTokenizer(made.raw(name), Settings({}, None, None)).table()
    assert {bytes([value]) for value in range(256)} <= set(table.pieces)


def test_ids_that_nothing_has_stand_for_no_text() -> None:
    pieces, special = pieces_of({"a": 0, "b": 3}, {5: ("<x>", True)}, scheme())
    assert pieces == [b"a", b"<1>", b"<2>", b"b", b"<4>", b"<x>"]
    assert special == [False, True, True, False, True, True]


def test_no_vocabulary_at_all() -> None:
    assert pieces_of({}, {}, scheme()) == ([], [])


def test_added_tokens_of_a_byte_level_vocabulary_are_plain_text() -> None:
    byte_level = scheme(decoder={"type": "ByteLevel"})
    pieces, special = pieces_of({"Ġa": 0, "é": 1}, {1: ("é", False), 2: ("  ", False)}, byte_level)
    assert pieces == [b" a", "é".encode(), b"  "]
    assert special == [False, False, False]


def test_added_runs_of_spaces_in_a_sentencepiece_vocabulary() -> None:
    metaspace = scheme(pre_tokenizer={"type": "Metaspace", "replacement": "▁"})
    assert pieces_of({"▁▁": 0}, {0: ("▁▁", False)}, metaspace) == ([b"  "], [False])


def test_byte_fallback_only_where_the_vocabulary_has_it() -> None:
    assert scheme(model={"byte_fallback": True}).piece("<0x0a>") == b"\n"
    assert scheme(decoder={"type": "ByteFallback"}).piece("<0xC3>") == b"\xc3"
    assert scheme().piece("<0x0A>") == b"<0x0A>"


def test_marks_inside_and_at_the_end_of_words() -> None:
    assert scheme(model={"continuing_subword_prefix": "##"}).piece("##ing") == b"ing"
    assert scheme(model={"end_of_word_suffix": "</w>"}).piece("dog</w>") == b"dog "


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "Metaspace", "prepend_scheme": "first"}, "first"),
        ({"type": "Metaspace", "prepend_scheme": "never"}, "never"),
        ({"type": "Metaspace", "add_prefix_space": True}, "always"),
        ({"type": "Metaspace", "add_prefix_space": False}, "never"),
        ({"type": "ByteLevel", "add_prefix_space": True}, "always"),
        ({"type": "ByteLevel", "add_prefix_space": False}, "never"),
        ({"type": "Digits"}, "never"),
    ],
)
def test_where_the_pre_tokeniser_puts_a_space(part: dict[str, Any], expected: str) -> None:
    assert scheme(pre_tokenizer=part).prefix == expected
    nested = sequence("pretokenizers", {"type": "Digits"}, sequence("pretokenizers", part))
    assert scheme(pre_tokenizer=nested).prefix == expected


def test_what_stands_for_a_space() -> None:
    to_underline = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    other = {"type": "Replace", "pattern": {"Regex": "x+"}, "content": " "}
    assert scheme().space is None
    assert scheme(normalizer=sequence("normalizers", other, to_underline)).space == "▁"
    assert scheme(decoder=sequence("decoders", back)).space == "▁"
    assert scheme(decoder=other).space is None
    assert scheme(normalizer=to_underline, decoder={"type": "ByteLevel"}).space is None
