"""`engine_daemon.tokens.align`: written special tokens, spaces put before text, text left out."""

import json
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from engine_daemon.protocol.events import NO_OFFSET
from engine_daemon.tokens.hf import HfTokenizer
from engine_daemon.tokens.settings import Settings
from engine_daemon.tokens.tokenizer import Source, Tokenised
from tests.tokens import made

Row = tuple[bytes, int | None, int | None]


def tokenise(library: Tokenizer, text: str) -> Tokenised:
    return HfTokenizer(library.to_str().encode(), Settings({}, None, None)).tokenise(Source(text))


def rows(tokenised: Tokenised) -> list[Row]:
    def place(offset: int) -> int | None:
        return None if offset == NO_OFFSET else offset

    columns = (tokenised.pieces, tokenised.starts, tokenised.ends)
    return [(p, place(s), place(e)) for p, s, e in zip(*columns, strict=True)]


def joined(tokenised: Tokenised) -> bytes:
    return b"".join(tokenised.pieces)


def with_token(library: Tokenizer, content: str, **flags: Any) -> Tokenizer:
    library.add_tokens([AddedToken(content, **flags)])
    return library


def test_a_token_that_takes_the_spaces_beside_it_is_shown_as_written() -> None:
    library = with_token(
        made.byte_level(), "<mask>", special=True, lstrip=True, rstrip=True, normalized=False
    )
    tokenised = tokenise(library, "a  <mask> \n b")
    assert (b"  <mask> \n ", 1, 12) in rows(tokenised)
    assert tokenised.normalised is None
    assert joined(tokenised) == b"a  <mask> \n b"


@pytest.mark.parametrize("text", ["<T>", "a<T>", "<T>b", "a<T>b", " <T> b", "<T><T>", "a <T>  <T>"])
def test_a_token_found_after_the_normaliser(text: str) -> None:
    library = with_token(made.byte_level(normalizers.Lowercase()), "<T>", normalized=True)
    tokenised = tokenise(library, text)
    assert joined(tokenised) == text.lower().encode()
    assert tokenised.normalised == text.lower().encode()
    assert tokenised.pieces.count(b"<t>") == text.count("<T>")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<T>b", " a<T> b"),
        ("<T>b", "<T> b"),
        ("<T> b", "<T> b"),
        (" a<T><T>", " a<T><T>"),
        ("", ""),
    ],
)
def test_a_space_is_put_after_each_token_found_after_the_normaliser(text: str, left: str) -> None:
    library = with_token(
        made.sentencepiece_like(None, pre_tokenizers.Metaspace(prepend_scheme="always")),
        "<T>",
        normalized=True,
    )
    tokenised = tokenise(library, text)
    assert joined(tokenised) == left.encode()
    assert tokenised.normalised == (None if left == text else left.encode())


def test_an_added_token_taking_spaces_after_the_normaliser() -> None:
    library = with_token(made.byte_level(), "<T>", normalized=True, lstrip=True, rstrip=True)
    tokenised = tokenise(library, "a <T> b")
    assert joined(tokenised) == b"a <T> b"
    assert (b" <T> ", 1, 6) in rows(tokenised)


def test_runs_of_spaces_written_in_the_vocabularys_own_spelling() -> None:
    library = with_token(
        made.sentencepiece_like(normalizers.Replace(" ", "▁"), None), "▁▁", normalized=False
    )
    written = tokenise(library, "a▁▁b")
    assert joined(written) == "a▁▁b".encode()
    assert written.normalised is None
    assert joined(tokenise(library, "a  b")) == b"a  b"


def test_bytes_without_a_token_are_left_out_and_named() -> None:
    tokenised = tokenise(made.byte_level(alphabet=False), "the\x04 dog\x05")
    assert tokenised.normalised == b"the dog" == joined(tokenised)
    assert tokenised.notes == [
        "the tokenizer has no token for 2 bytes (04 05) of the text and leaves that out"
    ]
    for piece, start, end in rows(tokenised):
        if start is not None:
            assert b"the\x04 dog\x05"[start:end] == piece


def test_a_text_of_nothing_but_bytes_without_a_token() -> None:
    tokenised = tokenise(made.byte_level(alphabet=False), "\x04")
    assert tokenised.ids == []
    assert tokenised.normalised == b""


def test_a_tokenizer_that_cannot_be_undone_says_so_and_shows_what_its_tokens_say() -> None:
    library = Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": {"dog": 0, "?": 1}, "unk_token": "?"},
            }
        )
    )
    tokenised = tokenise(library, "dog  cat dog")
    assert tokenised.normalised == b"dog?dog" == joined(tokenised)
    assert rows(tokenised) == [(b"dog", 0, 3), (b"?", None, None), (b"dog", 9, 12)]
    assert "cannot be undone exactly" in " ".join(tokenised.notes)


def test_unknown_text_is_shown_as_it_is_written() -> None:
    library = made.sentencepiece_like(normalizers.Replace(" ", "▁"), None, fallback=False)
    tokenised = tokenise(library, "a ☃☃ b")
    assert joined(tokenised) == "a ☃☃ b".encode()
    assert tokenised.normalised is None
    assert ("☃☃".encode(), 2, 8) in rows(tokenised)


def test_composed_characters_have_no_place_but_their_neighbours_do() -> None:
    tokenised = tokenise(made.byte_level(normalizers.NFC(), split=True), "x e\u0301 dog")
    assert joined(tokenised) == "x é dog".encode()
    placed = {piece: (start, end) for piece, start, end in rows(tokenised)}
    assert placed[b"x"] == (0, 1)
    assert placed[b" dog"] == (5, 9)
    assert None in {start for _, start, _ in rows(tokenised)}


def test_a_space_put_before_the_text_has_no_place() -> None:
    tokenised = tokenise(
        made.sentencepiece_like(
            normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None
        ),
        "the é",
    )
    assert joined(tokenised) == " the é".encode()
    assert rows(tokenised)[0] in [(b" the", 0, 3), (b" t", 0, 1), (b" ", None, None)]
    assert rows(tokenised)[-1][2] == 6
