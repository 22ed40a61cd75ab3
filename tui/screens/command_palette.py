"""Textual's palette of commands. Imported when it is opened: a start has no use for it."""

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.message import Message
from textual.widgets import Input, OptionList

from tui.screens.settled import Settled
from tui.widgets.choices import has_room


class SettledPalette(Settled, CommandPalette):
    """The palette, laid out for one size of the terminal at a time, and answered once."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Go; a second key that came before it was gone takes no other screen away."""
        return super().dismiss(result) if self.is_current else AwaitComplete()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A page of a list without a line is no page: Textual looks one up that it has not."""
        page = action == "command_list" and parameters in (("page_up",), ("page_down",))
        if page and not has_room(self.query_one(OptionList)):
            return False
        return super().check_action(action, parameters)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """One choice is carried out."""
        self._once(event)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """One choice is carried out."""
        self._once(event)

    def _once(self, event: Message) -> None:
        if not self.is_current:
            event.stop()
            event.prevent_default()
