"""Does transformers' own tokenizer give the ids that our tokens process gives?

A tokenizer read wrongly would still look right on screen, with a model that reads something else.
Knows a folder and some texts; what ids mean is the tokens process's business.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.pieces import ProbeText

_log: Final = logging.getLogger(__name__)


def check_tokenizer(folder: Path, probe: Sequence[ProbeText]) -> None:
    """InspectError (exit 3) at the first text with other ids.

    A folder whose tokenizer transformers cannot read by its own rules is let pass, with a note in
    the log: then there is nothing to compare with.
    """
    if not probe:
        return
    tokenizer = _own_tokenizer(folder)
    if tokenizer is None:
        return
    for text in probe:
        theirs = [int(token_id) for token_id in tokenizer(text.text)["input_ids"]]
        if theirs != text.ids:
            raise InspectError(
                f"two readings of {folder.name}'s tokenizer disagree on {text.text!r}: "
                f"{_first_difference(text.ids, theirs)}",
                "Get the checkpoint again; if it is sound, report this model",
                exit_code=Exit.MODEL,
                code="tokenizer",
            )


def _own_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        _log.warning("tokenizer not compared, transformers cannot read it: %s", error)
        return None


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    both = zip(ours, theirs, strict=False)
    place = next((i for i, (a, b) in enumerate(both) if a != b), min(len(ours), len(theirs)))
    return f"from token {place} on {list(ours[place : place + 3])} and {theirs[place : place + 3]}"
