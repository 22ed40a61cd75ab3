"""Textual's palette of commands. Imported when it is opened: a start has no use for it."""

from textual.command import CommandPalette

from tui.screens.settled import Settled


class SettledPalette(Settled, CommandPalette):
    """The palette, laid out for one size of the terminal at a time."""
