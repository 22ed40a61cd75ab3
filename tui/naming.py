"""Viewers by name, with the beginning of the id beside a name that several of them have.

Knows the view; no widgets.
"""

from collections.abc import Sequence
from typing import Final

from engine_daemon.protocol.state import ViewerInfo
from tui.acts import who_text
from tui.text import SafeText, clip
from tui.view import View

_CELLS: Final = 24


def which(viewer: ViewerInfo, people: Sequence[ViewerInfo]) -> str:
    """` #22a3` where the name alone does not tell which of these it is; else nothing."""
    several = sum(one.who == viewer.who for one in people) > 1
    return f" {viewer.sign}" if several else ""


def holder_text(view: View, who: str, cells: int = _CELLS) -> SafeText:
    """Another viewer of this name that has the lease of the session on screen, as it is shown."""
    people = [] if view.state is None else view.state.viewers
    others = (one for one in people if one.who == who and one.viewer != view.me())
    holder = next((one for one in others if view.session in one.holds), None)
    beside = "" if holder is None else which(holder, people)
    return SafeText(clip(who_text(who), cells - len(beside)) + beside)
