"""Prompts that come ready made: token ids, or a conversation for the chat template.

Knows the shape of such files; nothing of tokenizers.
"""

import json
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.outside import parse_json
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import ChatMessage

_U32: Final = 2**32
_SHORTER: Final = "Write it plainer, or shorter"
_IDS_HINT: Final = "Write [1, 2, 3], or numbers with white space between them"
_MESSAGES_HINT: Final = 'Write [{"role": "user", "content": "…"}, …]'


def read_ids(text: bytes, origin: str) -> bytes:
    """A u32 column of a JSON list, or of numbers with white space between them."""
    words = text.decode("utf-8", "replace").strip()
    found: list[object] = _json_list(words, origin) if words.startswith("[") else [*words.split()]
    ids: list[int] = []
    for place, word in enumerate(found):
        token_id = _whole(word)
        if token_id is None or not 0 <= token_id < _U32:
            raise InspectError(
                f"{origin}: entry {place + 1} is no token id: {_as_written(word)}", _IDS_HINT
            )
        ids.append(token_id)
    if not ids:
        raise InspectError(f"{origin} holds no token id", _IDS_HINT)
    return pack_ints("I", ids)


def _as_written(word: object) -> str:
    return repr(word[:40]) if isinstance(word, str) else json.dumps(word)[:40]


def _whole(word: object) -> int | None:
    if isinstance(word, str):
        return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else None
    return word if isinstance(word, int) and not isinstance(word, bool) else None


def _json_list(words: str, origin: str) -> list[object]:
    found = _json(words, origin)
    if not isinstance(found, list):
        raise InspectError(f"{origin} is no JSON list", _IDS_HINT)
    return found


def _json(words: str, origin: str) -> object:
    try:
        found: object = parse_json(words)
    except json.JSONDecodeError as error:
        raise InspectError(
            f"{origin} is no JSON (line {error.lineno})", "Check it with a JSON tool"
        ) from None
    except ValueError as error:
        raise InspectError(f"{origin} cannot be read: {error}", _SHORTER) from None
    return found


def read_messages(text: bytes, origin: str) -> list[ChatMessage]:
    """Messages of a JSON list of objects, or of an object that has them as `messages`."""
    found = _json(text.decode("utf-8", "replace"), origin)
    if isinstance(found, dict) and "messages" in found:
        found = found["messages"]
    if not isinstance(found, list) or not found:
        raise InspectError(f"{origin} holds no list of messages", _MESSAGES_HINT)
    return [_message(entry, f"{origin}: message {n}") for n, entry in enumerate(found, 1)]


def _message(entry: object, where: str) -> ChatMessage:
    if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
        raise InspectError(f"{where} has no role", _MESSAGES_HINT)
    extra = sorted(set(map(str, entry)) - {"role", "content"})
    if extra:
        raise InspectError(f"{where}: {extra[0]!r} is not supported", "Only role and content are")
    try:
        entry["role"].encode()
        return ChatMessage(role=entry["role"], content=_content(entry.get("content"), where))
    except UnicodeEncodeError:
        raise InspectError(
            f"{where} holds half a surrogate pair", "Write the character itself, or both halves"
        ) from None


def _content(content: object, where: str) -> bytes:
    """A text, or a list of text parts."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    kinds = [part.get("type") if isinstance(part, dict) else None for part in parts]
    strange = [kind for kind in kinds if isinstance(kind, str) and kind != "text"]
    if strange:
        raise InspectError(
            f"{where}: content of type {strange[0][:40]!r} is not supported", "Only text is"
        )
    if any(kind != "text" for kind in kinds) or not all(isinstance(text, str) for text in texts):
        raise InspectError(f"{where}: only text can be its content", _MESSAGES_HINT)
    return "".join(map(str, texts)).encode("utf-8", "surrogatepass")
