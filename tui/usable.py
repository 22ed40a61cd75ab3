"""Which actions would only be refused now: the last line does not offer them.

Knows the view and the table's names; the control and the daemon are who refuses.
"""

from typing import Final

from tui.view import View

_RUNNING: Final = frozenset({"main.run_or_pause"})
_STANDING: Final = frozenset(
    {
        "main.sampler",
        "main.resample",
        "main.force_text",
        "main.previous_branch",
        "main.next_branch",
        "main.recompute",
        "main.measure_naive",
    }
)
"""Need a session that stands."""
_FORCING: Final = frozenset({"main.choose", "next.force"})
_BREAKING: Final = frozenset({"main.breakpoints"})
_IN_SESSION: Final = _BREAKING | {"main.lease", "main.note"}
"""Need a session that is open, whatever it does."""
_LOOKING: Final = frozenset({"main.back", "main.follow", "main.first", "main.last"})
_STEP: Final = frozenset({"main.step"})
_OPENING: Final = frozenset({"main.new_prompt"})
_WEIGHTS: Final = frozenset({"main.check_weights"})
_READING: Final = frozenset({"main.what_if", "main.reroll"})
COMMANDING: Final = _RUNNING | _STANDING | _FORCING | _IN_SESSION | _OPENING | _WEIGHTS
"""What an observer never may. (`s` moves its cursor.)"""


def refused(view: View) -> frozenset[str]:
    """Ids of the actions that nothing but a refusal would come of."""
    if view.observing or not view.link:
        found = COMMANDING | (_READING if not view.link else frozenset())
    else:
        found = _by_session(view)
    if not view.forcible:
        found |= _FORCING
    if view.session is None:
        found |= _LOOKING | _STEP
    elif view.at_head and ("main.run_or_pause" in found or view.running or not _stands(view)):
        found |= _STEP
    return found


def _by_session(view: View) -> frozenset[str]:
    """What the state of engine and session leaves."""
    status = view.columns.status
    if view.session is None or status == "closed":
        return _RUNNING | _STANDING | _FORCING | _IN_SESSION | _READING
    if view.engine is not None and view.engine.word in ("starting", "loading", "dead"):
        return _RUNNING | _STANDING | _FORCING | _WEIGHTS | _READING
    if view.read_only:
        return _RUNNING | _STANDING | _FORCING | _BREAKING | _READING
    if status == "waiting":
        return _STANDING | _FORCING | (frozenset() if view.busy else _RUNNING)
    return _STANDING if view.running else frozenset()


def _stands(view: View) -> bool:
    """A step can be committed: it is paused or at its end, and that is not the context's."""
    full = view.columns.status == "ended" and view.columns.place.reason == "context"
    return view.columns.status in ("paused", "ended") and not full
