"""Which bytes each token id stands for, from what tokenizer.json says of itself.

Plain tables and JSON: knows nothing of the library that does the tokenising.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

Prefix = Literal["never", "first", "always"]
"""Where a space is put before text that has none: nowhere, at the very start of the prompt, or
also after every special token."""

_FALLBACK: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The 256 visible characters that byte-level vocabularies spell bytes with."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in visible]
    return {chr(value): value for value in visible} | {
        chr(256 + place): value for place, value in enumerate(hidden)
    }


_BYTES: Final = _byte_alphabet()


class _Model(msgspec.Struct, frozen=True):
    byte_fallback: bool = False
    unk_token: str | None = None
    unk_id: int | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


Part = dict[str, object]
"""A normaliser, pre-tokeniser or decoder as it stands in tokenizer.json."""


class Pipeline(msgspec.Struct, frozen=True):
    """The parts of tokenizer.json that decide what tokens stand for; the rest is skipped."""

    model: _Model
    normalizer: Part | None = None
    pre_tokenizer: Part | None = None
    decoder: Part | None = None

    @property
    def normalizers(self) -> list[Part]:
        """The normalisers, flat, in order."""
        return _chain(self.normalizer, "normalizers")

    @property
    def pre_tokenizers(self) -> list[Part]:
        """The pre-tokenisers, flat, in order."""
        return _chain(self.pre_tokenizer, "pretokenizers")

    @property
    def decoders(self) -> list[Part]:
        """The decoders, flat, in order."""
        return _chain(self.decoder, "decoders")


def _chain(part: Part | None, key: str) -> list[Part]:
    """A part and the parts it consists of, flat."""
    if part is None:
        return []
    inner = part.get(key)
    if part.get("type") != "Sequence" or not isinstance(inner, list):
        return [part]
    return [leaf for each in inner if isinstance(each, dict) for leaf in _chain(each, key)]


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a vocabulary spells text.

    `byte_level`: each character is a byte. `space`: the character written for a space, if any.
    `byte_fallback`: `<0x0A>` is a byte. `prefix`: where the pre-tokeniser adds a space.
    `prepends`: the normaliser adds one. `continuing`, `suffix`: marks inside and at the end of
    words, in vocabularies that cannot be undone exactly.
    """

    byte_level: bool
    space: str | None
    byte_fallback: bool
    prefix: Prefix
    prepends: bool
    continuing: str
    suffix: str

    def undo(self, text: str) -> bytes:
        """UTF-8 of normalised text, with the spaces that the vocabulary spells otherwise."""
        return (text if self.space is None else text.replace(self.space, " ")).encode()

    def piece(self, token: str) -> bytes:
        """Bytes of an ordinary token."""
        if self.byte_fallback and (byte := _FALLBACK.fullmatch(token)):
            return bytes.fromhex(byte[1])
        if self.byte_level:
            try:
                return bytes(map(_BYTES.__getitem__, token))
            except KeyError:  # outside the alphabet: it stands for itself
                return token.encode()
        if self.continuing and token.startswith(self.continuing):
            token = token.removeprefix(self.continuing)
        if self.suffix and token.endswith(self.suffix):
            token = token.removesuffix(self.suffix) + " "
        return self.undo(token)

    def added_piece(self, token: str, *, special: bool) -> bytes:
        """Bytes of a token matched as a whole in the text: what is written, spaces undone."""
        if special or self.byte_level:
            return token.encode()
        if self.byte_fallback and _FALLBACK.fullmatch(token):
            return self.piece(token)
        return self.undo(token)


def scheme_of(pipeline: Pipeline) -> Scheme:
    """Read the scheme off the pipeline's parts."""
    normalizers, decoders, model = pipeline.normalizers, pipeline.decoders, pipeline.model
    parts = [*normalizers, *pipeline.pre_tokenizers, *decoders]
    byte_level = any(part.get("type") == "ByteLevel" for part in parts)
    return Scheme(
        byte_level=byte_level,
        space=None if byte_level else _space(normalizers, parts),
        byte_fallback=model.byte_fallback or any(p.get("type") == "ByteFallback" for p in decoders),
        prefix=_prefix(pipeline.pre_tokenizers),
        prepends=any(part.get("type") == "Prepend" for part in normalizers),
        continuing=model.continuing_subword_prefix or "",
        suffix=model.end_of_word_suffix or "",
    )


def pieces_of(
    vocabulary: Mapping[str, int], added: Mapping[int, tuple[str, bool]], scheme: Scheme
) -> tuple[list[bytes], list[bool]]:
    """Bytes of every id up to the highest, and which are special. `added`: id → content, special.

    An id that nothing in the vocabulary has is `<id>` and special: it stands for no text.
    """
    count = 1 + max([*vocabulary.values(), *added], default=-1)
    pieces = [b"<%d>" % i for i in range(count)]
    special = [True] * count
    for token, token_id in vocabulary.items():
        pieces[token_id] = scheme.piece(token)
        special[token_id] = False
    for token_id, (content, is_special) in added.items():
        pieces[token_id] = scheme.added_piece(content, special=is_special)
        special[token_id] = is_special
    return pieces, special


def literals_of(vocabulary: Mapping[str, int], scheme: Scheme) -> dict[int, bytes]:
    """Tokens that stand for a byte and can be found written out as well."""
    if not scheme.byte_fallback:
        return {}
    return {i: token.encode() for token, i in vocabulary.items() if _FALLBACK.fullmatch(token)}


def unknown_of(pipeline: Pipeline, vocabulary: Mapping[str, int]) -> frozenset[int]:
    """Ids that stand for whatever the vocabulary lacks."""
    model = pipeline.model
    by_name = None if model.unk_token is None else vocabulary.get(model.unk_token)
    return frozenset(i for i in (by_name, model.unk_id) if i is not None)


def _space(normalizers: list[Part], parts: list[Part]) -> str | None:
    for part in parts:
        if part.get("type") == "Metaspace":
            return str(part.get("replacement", "▁"))
    for part in normalizers:
        if part.get("type") == "Replace" and part.get("pattern") == {"String": " "}:
            return str(part["content"])
    for part in parts:
        pattern = part.get("pattern")
        if (
            part.get("type") == "Replace"
            and part.get("content") == " "
            and isinstance(pattern, dict)
        ):
            return str(pattern["String"]) if "String" in pattern else None
    return None


def _prefix(pre_tokenizers: list[Part]) -> Prefix:
    for part in pre_tokenizers:
        if part.get("type") == "Metaspace":
            match part.get("prepend_scheme"):
                case "never" | "first" | "always" as scheme:
                    return scheme
                case _:  # files older than the field
                    return "always" if part.get("add_prefix_space", True) else "never"
        if part.get("type") == "ByteLevel" and part.get("add_prefix_space"):
            return "always"
    return "never"
