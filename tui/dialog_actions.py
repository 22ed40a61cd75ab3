"""The actions of dialogs: what keys do on the screens that lie over the main one.

Part of the table in `keymap`.
"""

from typing import Final

from tui.action import Action

DIALOG_ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        "open_session",
        ("ctrl+s",),
        "open",
        "Open a session on this prompt, paused at its first distribution",
        "prompt",
        shown="^s",
        footer=1,
        priority=True,
    ),
    Action(
        "cancel",
        ("escape",),
        "cancel",
        "Back to the main screen",
        "prompt",
        shown="esc",
        footer=3,
    ),
    Action(
        "apply",
        ("ctrl+s", "enter"),
        "apply",
        "Use this sampler from the pending step on",
        "sampler",
        shown="^s",
        footer=1,
        priority=True,
    ),
    Action(
        "cancel",
        ("escape",),
        "cancel",
        "Back to the main screen",
        "sampler",
        shown="esc",
        footer=3,
    ),
    Action("stand", ("enter",), "go there", "To the highlighted branch", "branches", footer=1),
    Action("cancel", ("escape", "q"), "cancel", "Stay", "branches", shown="esc", footer=2),
    Action("append", ("enter",), "append", "Append the text", "text", footer=1),
    Action("cancel", ("escape",), "cancel", "Append nothing", "text", shown="esc", footer=2),
    Action(
        "attach",
        ("enter",),
        "open",
        "Show the highlighted session",
        "sessions",
        footer=1,
        palette=False,
    ),
    Action(
        "close_session",
        ("x",),
        "close",
        "Close the highlighted session; its recording stays",
        "sessions",
        footer=2,
    ),
    Action(
        "cancel",
        ("escape", "q"),
        "cancel",
        "Back to the main screen",
        "sessions",
        shown="esc",
        footer=3,
    ),
    Action(
        "add",
        ("enter",),
        "add",
        "Stop where this condition becomes true",
        "breakpoints",
        shown="enter",
        footer=1,
    ),
    Action(
        "remove",
        ("delete", "x"),
        "remove",
        "Remove the highlighted condition (tab goes to the list)",
        "breakpoints",
        shown="x",
        footer=2,
    ),
    Action(
        "cancel",
        ("escape",),
        "cancel",
        "Back to the main screen",
        "breakpoints",
        shown="esc",
        footer=3,
    ),
    Action("cancel", ("escape", "q", "v"), "close", "Back", "viewers", shown="esc", footer=1),
    Action("write", ("enter",), "write", "Keep this note", "note", footer=1),
    Action("cancel", ("escape",), "cancel", "Write nothing", "note", shown="esc", footer=2),
    Action("jump", ("enter",), "go there", "Cursor to the highlighted note", "notes", footer=1),
    Action("cancel", ("escape", "q"), "cancel", "Stay", "notes", shown="esc", footer=2),
)
"""By scope; each dialog has its own."""
