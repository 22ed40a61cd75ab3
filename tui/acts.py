"""A command that somebody gave, in a few words: `bob@box: step to 12`.

Knows commands as the log has them; no widgets.
"""

from typing import Final

from engine_daemon.protocol.events import Commanded, Noted
from tui.text import SafeText, clip, show_text

_WHO_CELLS: Final = 24
_TEXT_CELLS: Final = 40
_WORDS: Final = {
    "open": "opened it",
    "pause": "pause",
    "set_sampler": "another sampler",
    "resample": "drew again",
    "switch": "to another branch",
    "recompute": "made a row again",
    "set_watch": "another watch list",
    "measure_naive": "no-cache cost",
    "close": "close",
}


def who_text(who: str) -> SafeText:
    """A name as it is shown: short and harmless."""
    return clip(show_text(who), _WHO_CELLS)


def act_text(act: Commanded | Noted) -> SafeText:
    """Who, and what."""
    return SafeText(f"{who_text(act.who)}: {_what(act)}")


def _what(act: Commanded | Noted) -> str:
    if isinstance(act, Noted):
        return f"note {clip(show_text(act.text), _TEXT_CELLS)}"
    match act.op:
        case "run_to":
            return "run" if act.goal is None else f"step to {act.goal}"
        case "force":
            return f"forced id {act.id}"
        case "force_text":
            return f"forced a text up to step {act.goal}"
        case "add_condition":
            return f"breakpoint {clip(show_text(act.text), _TEXT_CELLS)}"
        case "remove_condition":
            return f"removed breakpoint {act.id}"
        case "take":
            return f"took the lease from {who_text(act.text)}"
        case _:
            return _WORDS.get(act.op) or show_text(act.op)
