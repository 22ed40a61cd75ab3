"""A tokenizer of the `tokenizers` library, opened, and with it how its ids are read back.

Knows the library and the scheme of a vocabulary; nothing of prompts, chats or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import tokenizers
from tokenizers import AddedToken, processors

from engine_daemon.tokens.align import Added, Vocabulary
from engine_daemon.tokens.pieces import Pipeline, literals_of, pieces_of, scheme_of, unknown_of
from engine_daemon.tokens.quoting import StandIns
from engine_daemon.tokens.settings import Settings


@dataclass(frozen=True, slots=True)
class Reader:
    """`post` adds what the tokenizer puts around a prompt; it is kept apart from `tokenizer`.

    With stand-ins (`quoting_reader`): `written` maps each to its special token's text, `real` its
    id to the special token's.
    """

    tokenizer: tokenizers.Tokenizer
    post: processors.PostProcessor | None
    vocabulary: Vocabulary
    special: list[bool]
    written: Mapping[int, str] = field(default_factory=dict)
    real: Mapping[int, int] = field(default_factory=dict)


def open_reader(raw: bytes, pipeline: Pipeline, settings: Settings) -> Reader:
    """Open tokenizer.json as transformers does; ValueError when the library cannot."""
    tokenizer = _open(raw)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    contents = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    named = [s for s in settings.specials.values() if s in vocabulary and s not in contents]
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in named])
    added = {
        i: Added(t.content, t.special, t.normalized, t.lstrip, t.rstrip)
        for i, t in tokenizer.get_added_tokens_decoder().items()
    }
    scheme = scheme_of(pipeline)
    pieces, special = pieces_of(
        vocabulary, {i: (token.content, token.special) for i, token in added.items()}, scheme
    )
    post = tokenizer.post_processor
    tokenizer.post_processor = None
    normalizer = tokenizer.normalizer
    return Reader(
        tokenizer,
        post,
        Vocabulary(
            scheme=scheme,
            normalise=str if normalizer is None else normalizer.normalize_str,
            pieces=pieces,
            added=added,
            unknown=unknown_of(pipeline, vocabulary),
            literal=literals_of(vocabulary, scheme),
        ),
        special,
    )


def quoting_reader(raw: bytes, reader: Reader, stand_ins: StandIns) -> Reader:
    """A second reader of the same file: special tokens are text to it, stand-ins are special."""
    tokenizer = _open(raw)
    tokenizer.post_processor = None
    tokenizer.encode_special_tokens = True
    added = {i: token for i, token in reader.vocabulary.added.items() if not token.special}
    real = {}
    for token_id, token in reader.vocabulary.added.items():
        if not token.special:
            continue
        character = stand_ins.characters[token.content]
        stand_in = AddedToken(character, lstrip=token.left, rstrip=token.right, normalized=False)
        tokenizer.add_tokens([stand_in])
        own_id = tokenizer.token_to_id(character)
        assert own_id is not None
        real[own_id] = token_id
        added[own_id] = Added(character, True, False, token.left, token.right)
    return replace(
        reader,
        tokenizer=tokenizer,
        vocabulary=replace(reader.vocabulary, added=added),
        written=stand_ins.written,
        real=real,
    )


def _open(raw: bytes) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(raw)
    except Exception as error:
        raise ValueError(str(error)) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
