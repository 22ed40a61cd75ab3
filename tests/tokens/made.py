"""Small tokenizers of every kind in use, trained here: no test needs a download.

Each kind says by itself, in plain Python, what its normaliser leaves of a text; the tests hold the
tokens process against that.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SPECIALS = ["<unk>", "<s>", "</s>", "<|tool|>"]
CORPUS = [
    "the quick brown fox jumps over the lazy dog and the other dog",
    "Kubernetes pods are scheduled by the scheduler, one at a time.",
    "naïve café crème brûlée, 東京 and 大阪, привет мир, γειά σου",
    "def f(x):\n\treturn {'a': x ** 2}\n\n\n    # four spaces",
    "🙂 🙃 👩‍👩‍👧 ﬁne ①②③ Å Å",
]

Left = Callable[[str], str]
"""What the normaliser leaves of a text without special tokens, and whether it is at the start."""


@dataclass(frozen=True)
class Kind:
    """A kind of tokenizer. `left(segment, at_start)`: what it makes of text between specials."""

    name: str
    make: Callable[[], Tokenizer]
    left: Callable[[str, bool], str]
    bos: bool = False


def _same(segment: str, at_start: bool) -> str:
    return segment


def _nfc(segment: str, at_start: bool) -> str:
    return unicodedata.normalize("NFC", segment)


def _spaces(segment: str, at_start: bool) -> str:
    return segment.replace("▁", " ")


def _prepended(segment: str, at_start: bool) -> str:
    return " " + _spaces(segment, at_start)


def _prefixed(segment: str, at_start: bool) -> str:
    text = _spaces(segment, at_start)
    return text if text.startswith(" ") else " " + text


def _prefixed_bytes(segment: str, at_start: bool) -> str:
    return segment if segment.startswith(" ") else " " + segment


def _prefixed_first(segment: str, at_start: bool) -> str:
    return _prefixed(segment, at_start) if at_start else _spaces(segment, at_start)


def _nfkc_spaces(segment: str, at_start: bool) -> str:
    return _spaces(unicodedata.normalize("NFKC", segment), at_start)


def _nfkc_prefixed(segment: str, at_start: bool) -> str:
    return _prefixed(unicodedata.normalize("NFKC", segment), at_start)


def byte_level(
    normalizer: Any = None, *, prefix: bool = False, split: bool = False, alphabet: bool = True
) -> Tokenizer:
    """Byte-level BPE as GPT-2 has it; `split`: as Qwen has it."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    words = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        if split
        else pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece_like(
    normalizer: Any, pre_tokenizer: Any, *, bos: bool = False, fallback: bool = True
) -> Tokenizer:
    """BPE over characters with ▁ for space, and a token for every byte."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = [*SPECIALS[:3], *(f"<0x{i:02X}>" for i in range(256) if fallback), *model["vocab"]]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[(a, b) for a, b in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=fallback,
        )
    )
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    _finish(tokenizer, bos=bos)
    return tokenizer


def unigram(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    """Unigram with byte fallback, as T5-like and Gemma-like SentencePiece models are converted."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    trained.train_from_iterator(CORPUS, trainer)
    vocabulary = [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"]]
    vocabulary += [(f"<0x{i:02X}>", -20.0) for i in range(256)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    _finish(tokenizer, bos=False)
    return tokenizer


def _finish(tokenizer: Tokenizer, *, bos: bool) -> None:
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    if bos:
        begin = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", begin)]
        )


def _replace() -> Any:
    return normalizers.Replace(" ", "▁")


def _metaspace(scheme: Any, *, split: bool = True) -> Any:
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)


KINDS = [
    Kind("byte level", byte_level, _same),
    Kind("byte level, NFC", lambda: byte_level(normalizers.NFC(), split=True), _nfc),
    Kind("byte level, prefix", lambda: byte_level(prefix=True), _prefixed_bytes),
    Kind(
        "Llama, prepend",
        lambda: sentencepiece_like(
            normalizers.Sequence([normalizers.Prepend("▁"), _replace()]), None, bos=True
        ),
        _prepended,
        bos=True,
    ),
    Kind("Metaspace, always", lambda: sentencepiece_like(None, _metaspace("always")), _prefixed),
    Kind(
        "Metaspace, first",
        lambda: sentencepiece_like(None, _metaspace("first", split=False), bos=True),
        _prefixed_first,
        bos=True,
    ),
    Kind("no prefix", lambda: sentencepiece_like(_replace(), None), _spaces),
    Kind("Metaspace, never", lambda: sentencepiece_like(None, _metaspace("never")), _spaces),
    Kind(
        "NFKC",
        lambda: sentencepiece_like(normalizers.Sequence([normalizers.NFKC(), _replace()]), None),
        _nfkc_spaces,
    ),
    Kind("no fallback", lambda: sentencepiece_like(_replace(), None, fallback=False), _spaces),
    Kind(
        "Unigram, NFKC", lambda: unigram(normalizers.NFKC(), _metaspace("always")), _nfkc_prefixed
    ),
]


def expected(kind: Kind, text: str) -> str:
    """The text as the normaliser leaves it: between specials, which stay as they are written."""
    written = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")
    parts, at = [], 0
    for part in written.split(text):
        parts.append(part if part in SPECIALS or not part else kind.left(part, at == 0))
        at += len(part)
    return "".join(parts)


@cache
def raw(kind_name: str) -> bytes:
    """tokenizer.json of a kind."""
    (kind,) = (k for k in KINDS if k.name == kind_name)
    return kind.make().to_str().encode()
