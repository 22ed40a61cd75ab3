"""Every action of the screen in one table: keys, footer, help and palette are made from it.

Knows names and words; nothing of what an action does.
"""

from typing import Final

from textual.binding import Binding, BindingType

from tui.action import SCOPES as SCOPES
from tui.action import Action as Action
from tui.action import Scope as Scope
from tui.dialog_actions import DIALOG_ACTIONS
from tui.replay_actions import REPLAY_ACTIONS

ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        "run_or_pause",
        ("space",),
        "pause/run",
        "Run the session, or pause it at the next token",
        shown="space",
        footer=1,
    ),
    Action(
        "step",
        ("s",),
        "step",
        "At the head: commit one token (10s: ten). Behind it: move the cursor on",
        footer=2,
    ),
    Action(
        "back",
        ("S",),
        "back",
        "Move the cursor one step back (10S: ten); the engine does nothing",
        footer=3,
    ),
    Action("cursor_left", ("left", "h"), "cursor left", "Cursor one step back", palette=False),
    Action(
        "cursor_right",
        ("right", "l"),
        "cursor right",
        "Cursor one step on; never commits a token",
        palette=False,
    ),
    Action("follow", ("f",), "follow", "Keep the cursor at the head, or let it stand", footer=9),
    Action("first", ("g", "home"), "first", "Cursor to the first step", shown="g", footer=12),
    Action(
        "last",
        ("G", "end"),
        "last",
        "Cursor to the head (500G: to step 500)",
        shown="G",
        footer=13,
    ),
    Action(
        "new_prompt",
        ("ctrl+n",),
        "new prompt",
        "Open a session on another prompt",
        shown="^n",
        footer=7,
    ),
    Action(
        "choose",
        ("enter",),
        "choose",
        "Go to NEXT TOKEN; there enter forces the highlighted candidate",
        footer=4,
        palette=False,
    ),
    Action("sampler", ("p",), "sampler", "Set temperature, top-k, top-p, min-p, seed …", footer=8),
    Action(
        "breakpoints",
        ("b",),
        "breakpoint",
        "Stop where a condition becomes true; list and remove conditions",
        footer=5,
    ),
    Action(
        "resample",
        ("r",),
        "resample",
        "At the pending step: draw by another random number and append what was drawn. At a step"
        " behind the head: the same, on a branch of its own. Greedy would pick the same token: p"
        " sets a sampler that draws",
    ),
    Action("force_text", ("i",), "type", "Type a text; its tokens are forced one after the other"),
    Action("previous_branch", ("left_square_bracket",), "branch back", "To the branch before"),
    Action("next_branch", ("right_square_bracket",), "branch on", "To the next branch"),
    Action(
        "branches",
        ("B",),
        "branches",
        "The branches: what each says, how probable it is, and where two differ",
    ),
    Action("what_if", ("w",), "what if", "The step under another sampler, without using it"),
    Action("reroll", ("R",), "re-roll", "Draw the step 1000 times (50R: 50) and count; no effect"),
    Action(
        "recompute",
        ("C",),
        "recompute",
        "Compute the logits of the step again where they are not held any more, for R and w",
    ),
    Action("sessions", ("t",), "sessions", "Choose another session", footer=10),
    Action(
        "lease",
        ("L",),
        "lease",
        "Take the right to command this session (from somebody: asks first), or give it back",
    ),
    Action("viewers", ("v",), "viewers", "Who is attached, and who did what"),
    Action("engine", ("E",), "engine", "Look into the engine: where its ranks are; end it"),
    Action("note", ("m",), "note", "Write a note at the step under the cursor"),
    Action("notes", ("apostrophe",), "notes", "All notes; enter goes to the step of one"),
    Action(
        "measure_naive",
        ("N",),
        "no-cache cost",
        "Measure a forward without cache up to the cursor (5N: at five lengths); space cancels",
    ),
    Action(
        "check_weights",
        ("W",),
        "check weights",
        "Sum the parameters in memory and compare with what was loaded",
    ),
    Action("copy", ("y",), "copy", "Copy the text so far (through the terminal, OSC 52)"),
    Action(
        "next_pane",
        ("tab",),
        "next pane",
        "Focus the next pane; on small terminals it comes to the front",
        palette=False,
    ),
    Action(
        "previous_pane", ("shift+tab",), "previous pane", "Focus the pane before", palette=False
    ),
    Action("zoom", ("z",), "zoom", "Give the focused pane the whole screen, or take it back"),
    Action("theme", ("T",), "theme", "Use the next theme"),
    Action("help", ("question_mark", "f1"), "help", "This list", shown="?", footer=5),
    Action(
        "palette",
        ("colon", "ctrl+p"),
        "palette",
        "Find an action by its name",
        shown=":",
        footer=11,
        palette=False,
    ),
    Action(
        "interrupt",
        ("ctrl+c",),
        "pause",
        "Pause a running session; otherwise say how to leave",
        palette=False,
        priority=True,
    ),
    Action("forget_count", ("escape",), "cancel", "Forget a count that was typed", palette=False),
    Action(
        "leave",
        ("q", "ctrl+q"),
        "quit",
        "Leave at once; daemon and session go on",
        shown="q",
        footer=6,
    ),
    Action("line_up", ("up", "k"), "line up", "Cursor to the line above", "sequence"),
    Action("line_down", ("down", "j"), "line down", "Cursor to the line below", "sequence"),
    Action("page_up", ("pageup",), "page up", "Cursor one page up", "sequence"),
    Action("page_down", ("pagedown",), "page down", "Cursor one page down", "sequence"),
    Action("row_up", ("up", "k"), "row up", "Highlight the candidate above", "next"),
    Action("row_down", ("down", "j"), "row down", "Highlight the candidate below", "next"),
    Action("rows_up", ("pageup",), "page up", "Highlight one page up", "next"),
    Action("rows_down", ("pagedown",), "page down", "Highlight one page down", "next"),
    Action(
        "force",
        ("enter",),
        "force",
        "Append the highlighted candidate, whatever its probability; at a step behind the head,"
        " on a branch of its own",
        "next",
        footer=4,
    ),
    Action("unit", ("u",), "unit", "Show probability, log-probability or logit", "next"),
    Action("token_up", ("up", "k"), "up", "Cursor one token back", "tokens"),
    Action("token_down", ("down", "j"), "down", "Cursor one token on", "tokens"),
    Action("tokens_up", ("pageup",), "page up", "Cursor one page back", "tokens"),
    Action("tokens_down", ("pagedown",), "page down", "Cursor one page on", "tokens"),
    Action(
        "mode",
        ("M",),
        "mode",
        "Plot a step's time, time so far, or tokens a second. The parts of the cost are least"
        " squares of a + b n, the curve between no-cache points of a + b n + c n²",
        "cost",
    ),
    *DIALOG_ACTIONS,
    *REPLAY_ACTIONS,
)
"""The table. Other screens and panes have their own scope; a key is used once in a scope."""

PANE_SCOPES: Final[tuple[Scope, ...]] = ("sequence", "next", "tokens", "cost")
"""Those of the main screen's panes."""
_WHOLE_SCREEN: Final[tuple[Scope, ...]] = ("main", "replay")

_DISPLAY: Final = {
    "question_mark": "?",
    "apostrophe": "'",
    "colon": ":",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "esc",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}


def key_name(key: str) -> str:
    """A key as people write it."""
    return _DISPLAY.get(key, key.replace("ctrl+", "^"))


def in_scope(scope: Scope) -> list[Action]:
    """The actions of one scope, in the table's order."""
    return [action for action in ACTIONS if action.scope == scope]


def lone(key: str) -> Action | None:
    """The action of this key where one single pane has it: it may work wherever the focus is."""
    found = [action for scope in PANE_SCOPES for action in in_scope(scope) if key in action.keys]
    return found[0] if len(found) == 1 and not _is_everywhere(key) else None


def _is_everywhere(key: str) -> bool:
    return any(key in one.keys for scope in _WHOLE_SCREEN for one in in_scope(scope))


def bindings(scope: Scope) -> list[BindingType]:
    """Textual's bindings for a scope: the first key shows in the footer, the rest only work."""
    return [
        Binding(
            key,
            action.name,
            action.label,
            id=f"{action.id}.{key}" if number else action.id,
            key_display=action.shown or key_name(key),
            show=action.footer > 0 and number == 0,
            tooltip=action.help,
            priority=action.priority,
        )
        for action in in_scope(scope)
        for number, key in enumerate(action.keys)
    ]
