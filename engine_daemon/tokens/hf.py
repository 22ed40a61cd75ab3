"""A tokenizer.json read with the `tokenizers` library, as the model's own tokenizer reads it.

Knows nothing of directories, events or sockets.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from tokenizers import Encoding

from engine_daemon.errors import InspectError
from engine_daemon.protocol.events import NO_OFFSET
from engine_daemon.protocol.pieces import PieceTable, ProbeText
from engine_daemon.tokens import notes, quoting, roles
from engine_daemon.tokens.align import Aligned, align
from engine_daemon.tokens.bound import bound_of
from engine_daemon.tokens.pieces import Pipeline
from engine_daemon.tokens.reader import Reader, open_reader, quoting_reader
from engine_daemon.tokens.settings import Settings
from engine_daemon.tokens.templates import ChatTemplate
from engine_daemon.tokens.tokenizer import Source, Tokenised

_PROBES: Final = ("The quick brown fox", "naïve café 東京 🙂", "x = {1: 'a'}\n\tdef f():  pass")
"""Texts whose ids the worker compares with transformers' own tokenizer."""

_Parts = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Ids added before the prompt, the prompt's, ids added after it."""


class HfTokenizer:
    """A model's tokenizer and chat template. ValueError for a tokenizer.json that is none."""

    def __init__(self, raw: bytes, settings: Settings) -> None:
        self.tokenizer_id = hashlib.sha256(raw).hexdigest()
        self.context_length = settings.context_length
        self._raw = raw
        self._settings = settings
        pipeline = msgspec.json.decode(raw, type=Pipeline)
        self._normalizers = [str(part.get("type")) for part in pipeline.normalizers]
        self._reader = open_reader(raw, pipeline, settings)
        self._bound = bound_of(pipeline, self._reader.vocabulary)
        specials = [t.content for t in self._reader.vocabulary.added.values() if t.special]
        self._specials = quoting.pattern(specials)
        self._stand_ins = quoting.StandIns(specials)
        self._quoting_reader: Reader | None = None
        self._template: ChatTemplate | None = None

    def table(self) -> PieceTable:
        """Bytes of every id, with probe texts."""
        probe = [ProbeText(text, self.tokenise(Source(text)).ids) for text in _PROBES]
        reader = self._reader
        return PieceTable(self.tokenizer_id, reader.vocabulary.pieces, reader.special, probe)

    def least(self, text: str) -> int:
        """No fewer tokens than this come of `text`."""
        return 0 if self._bound is None else self._bound.least(text)

    def chat(self, system: str | None, user: str, *, specials: bool) -> Source:
        """The chat template applied to one user message. InspectError where that cannot be."""
        both = (("system", system), ("user", user))
        messages = [(role, text) for role, text in both if text is not None]
        return self.converse(messages, specials=specials)

    def converse(self, messages: Sequence[tuple[str, str]], *, specials: bool) -> Source:
        """The chat template applied to (role, content) messages. InspectError as above."""
        template = self._chat_template()

        def render(some: Sequence[tuple[str, str]]) -> str:
            return template.render(
                [
                    {"role": role, "content": text if specials else self._marked(text)}
                    for role, text in some
                ]
            )

        roles.check_spelling(messages, template.named)
        rendered = render(messages)
        roles.check_kept(messages, template.named, rendered, render)
        if specials:
            typed = [s for _, text in messages for s in self._specials.findall(text)]
            return Source(rendered, chat=True, notes=tuple(notes.typed(typed)))
        text, quoted = quoting.unmark(rendered)
        return Source(text, chat=True, specials=False, quoted=quoted)

    def _marked(self, text: str) -> str:
        return quoting.mark(text, self._specials)

    def tokenise(self, source: Source) -> Tokenised:
        """Text → ids with what each stands for."""
        reader, text = self._reader, source.text
        if source.chat and not source.specials:
            reader = self._quoting()
            text = self._stand_ins.put(text, source.quoted)
        reader.tokenizer.encode_special_tokens = not source.specials
        started = time.perf_counter()
        encoding = reader.tokenizer.encode(text, add_special_tokens=False)
        before, after = ([], []) if source.chat else _around(encoding, reader)
        ids = encoding.ids
        self._only_text(ids)
        ms = (time.perf_counter() - started) * 1e3
        aligned = align(text, ids, encoding.offsets, reader.vocabulary, reader.written)
        ids = [reader.real.get(i, i) for i in ids] if reader.real else ids
        return self._tokenised(source, aligned, (before, ids, after), ms)

    def _only_text(self, ids: Sequence[int]) -> None:
        """InspectError when the prompt asks for something to be seen or heard."""
        media = self._settings.media
        found = next((i for i in ids if i in media), None) if media else None
        if found is not None:
            raise InspectError(
                f"the prompt holds {self._names([found])[0]}, which stands for an image, a video "
                "or a sound: not supported",
                "Only text is read; --no-specials keeps the mark as text",
                code="not_supported",
            )

    def _tokenised(self, source: Source, aligned: Aligned, parts: _Parts, ms: float) -> Tokenised:
        before, ids, after = parts
        names = self._reader.vocabulary.pieces
        spelled = b"".join(aligned.pieces)
        return Tokenised(
            ids=[*before, *ids, *after],
            pieces=[*(names[i] for i in before), *aligned.pieces, *(names[i] for i in after)],
            special=[self._reader.special[i] for part in parts for i in part],
            added=[True] * len(before) + [False] * len(ids) + [True] * len(after),
            starts=[*[NO_OFFSET] * len(before), *aligned.starts, *[NO_OFFSET] * len(after)],
            ends=[*[NO_OFFSET] * len(before), *aligned.ends, *[NO_OFFSET] * len(after)],
            ms=ms,
            normalised=None if spelled == source.text.encode() else spelled,
            notes=[*source.notes, *self._notes(source, aligned, parts)],
        )

    def _notes(self, source: Source, aligned: Aligned, parts: _Parts) -> list[str]:
        before, ids, after = parts
        said = notes.added(self._names(before), self._names(after), self._bos)
        if before and ids and before[-1] == ids[0] and self._reader.special[ids[0]]:
            said.append(notes.twice(*self._names([ids[0]])))
        unknown = self._reader.vocabulary.unknown
        written = [i for i in ids if self._reader.special[i] and i not in unknown]
        if not source.chat:  # a template writes its own; what a person typed is named by `chat`
            said += notes.specials(self._names(written))
        strange = [i for i in ids if i in unknown]
        said += notes.unknown(self._names(strange))
        return said + notes.changes(aligned, self._normalizers)

    def _names(self, ids: Sequence[int]) -> list[str]:
        pieces = self._reader.vocabulary.pieces
        return [pieces[i].decode(errors="backslashreplace") for i in ids]

    @property
    def _bos(self) -> str | None:
        return self._settings.specials.get("bos_token")

    def _quoting(self) -> Reader:
        if self._quoting_reader is None:
            self._quoting_reader = quoting_reader(self._raw, self._reader, self._stand_ins)
        return self._quoting_reader

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            source = self._settings.template
            if source is None:
                raise InspectError(
                    "this model has no chat template",
                    "Leave out --chat: the prompt is then sent as it is",
                    code="no_template",
                )
            self._template = ChatTemplate(source, self._settings.specials)
        return self._template


def _around(encoding: Encoding, reader: Reader) -> tuple[list[int], list[int]]:
    """Ids that the tokenizer puts before and after a prompt."""
    if reader.post is None:
        return [], []
    full = reader.post.process(encoding, add_special_tokens=True)
    mask = full.special_tokens_mask
    before = next((n for n, is_added in enumerate(mask) if not is_added), len(mask))
    return full.ids[:before], full.ids[before + len(encoding.ids) :]
