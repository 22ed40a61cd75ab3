"""Where a prompt comes from: an argument, a file, or standard input, byte-exact.

Reads and checks; knows no tokenizer and no daemon.
"""

import os
import sys
from pathlib import Path
from typing import Final

from engine_daemon.cli.options import Given
from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import TEXT_LIMIT
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.sizes import sized

STDIN: Final = "-"


def read_prompt(arguments: list[str], given: Given) -> PromptSpec | None:
    """The prompt of a command line; None when there is none. InspectError for a bad one."""
    if given.chat and given.raw:
        raise InspectError("--chat and --raw exclude each other")
    if given.system is not None and not given.chat and given.messages is None:
        raise InspectError("--system needs the chat template", "Add --chat")
    if arguments and given.prompt_file is not None:
        raise InspectError("a prompt and --prompt-file exclude each other")
    if given.prompt_ids is not None or given.messages is not None:
        return _prepared(arguments, given)
    if not arguments and given.prompt_file is None:
        return None
    source = given.prompt_file or arguments[0]
    if given.prompt_file is None and source != STDIN:
        text, origin = os.fsencode(source), "the prompt"
    elif source == STDIN:
        text, origin = sys.stdin.buffer.read(TEXT_LIMIT + 1), "standard input"
    else:
        text, origin = _read_file(source), source
    system = None if given.system is None else os.fsencode(given.system)
    _check(text, origin)
    _check(system or b"-", "--system")
    if len(text) + len(system or b"") > TEXT_LIMIT:
        raise _too_big("prompt and --system are", None)
    return PromptSpec(text=text, template=given.chat, system=system, specials=not given.no_specials)


def _prepared(arguments: list[str], given: Given) -> PromptSpec:
    """Ids or a conversation, from a file."""
    from engine_daemon.cli.prepared import read_ids, read_messages

    ids, messages = given.prompt_ids, given.messages
    used = {
        "a prompt": bool(arguments),
        "--prompt-file": given.prompt_file is not None,
        "--messages": messages is not None,
        "--prompt-ids": ids is not None,
        "--system": given.system is not None,
        "--raw": messages is not None and given.raw,
        "--chat": ids is not None and given.chat,
        "--no-specials": ids is not None and given.no_specials,
    }
    names = [name for name, is_used in used.items() if is_used]
    if len(names) > 1:
        raise InspectError(f"{' and '.join(names[:2])} exclude each other")
    source = messages if ids is None else ids
    assert source is not None
    text = sys.stdin.buffer.read(TEXT_LIMIT + 1) if source == STDIN else _read_file(source)
    origin = "standard input" if source == STDIN else source
    _check(text, origin)
    if ids is not None:
        return PromptSpec(text=b"", ids=read_ids(text, origin))
    return PromptSpec(
        text=b"",
        template=True,
        messages=read_messages(text, origin),
        specials=not given.no_specials,
    )


def _read_file(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > TEXT_LIMIT:
                raise _too_big(f"{name} is", size)
            return file.read(TEXT_LIMIT + 1)
    except OSError as error:
        raise InspectError(f"cannot read {name}: {error.strerror}") from None


def _check(text: bytes, origin: str) -> None:
    if not text:
        raise InspectError(f"{origin} is empty", "Give at least one character to decode from")
    if len(text) > TEXT_LIMIT:
        raise _too_big(f"{origin} is", None)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InspectError(
            f"{origin} is not UTF-8: byte 0x{text[error.start]:02x} at {error.start}",
            "Convert it first, for example with iconv -t UTF-8",
        ) from None


def _too_big(what: str, size: int | None) -> InspectError:
    amount = "more" if size is None else sized(size)
    limit = f"the limit is {sized(TEXT_LIMIT)}"
    return InspectError(f"{what} {amount}, {limit}" if size else f"{what} over the limit: {limit}")
