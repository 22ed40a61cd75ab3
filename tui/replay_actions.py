"""What keys do in a replay, and what they cannot do there.

Rows of the action table; knows names and words only.
"""

from typing import Final

from tui.action import Action

REPLAY_ACTIONS: Final = (
    Action(
        "run_or_pause",
        ("space",),
        "play/pause",
        "Play from the step shown, as fast as it was decoded; or pause",
        "replay",
        shown="space",
        footer=1,
    ),
    Action("step", ("s",), "step on", "One step on (10s: ten)", "replay", footer=2),
    Action("back", ("S",), "back", "One step back (10S: ten)", "replay", footer=3),
    Action(
        "faster",
        ("greater_than_sign",),
        "faster",
        "Twice as fast, up to 256 times the recorded speed",
        "replay",
        footer=4,
    ),
    Action(
        "slower",
        ("less_than_sign",),
        "slower",
        "Half as fast, down to an eighth",
        "replay",
        footer=4,
    ),
    Action("first", ("g", "home"), "first", "To the first step", "replay", shown="g", footer=5),
    Action(
        "last",
        ("G", "end"),
        "last",
        "To the last step (500G: to step 500)",
        "replay",
        shown="G",
        footer=5,
    ),
    Action(
        "next_mark",
        ("right_curly_bracket",),
        "next mark",
        "To the next step where a condition was true, a note is, or a branch leaves",
        "replay",
        footer=6,
    ),
    Action(
        "previous_mark",
        ("left_curly_bracket",),
        "mark before",
        "To the mark before",
        "replay",
        footer=7,
    ),
    Action(
        "unveil",
        ("F",),
        "future",
        "Show what comes after this step, or hide it again",
        "replay",
        footer=8,
    ),
    Action(
        "leave",
        ("q", "ctrl+q"),
        "quit",
        "Leave the replay",
        "replay",
        shown="q",
        footer=6,
    ),
)
"""They stand before the main screen's own on the same keys."""

NEEDS_ENGINE: Final = frozenset(
    {
        "main.new_prompt",
        "main.choose",
        "main.sampler",
        "main.breakpoints",
        "main.resample",
        "main.force_text",
        "main.what_if",
        "main.reroll",
        "main.recompute",
        "main.sessions",
        "main.measure_naive",
        "main.check_weights",
        "main.lease",
        "main.viewers",
        "main.engine",
        "main.note",
        "next.force",
    }
)
"""Actions that a replay refuses, by id."""
