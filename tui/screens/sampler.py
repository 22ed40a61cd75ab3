"""Sampler settings: change how the next id is picked, from the pending step on.

Gives back a sampler; sends nothing itself.
"""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from engine_daemon.errors import InspectError
from engine_daemon.protocol.values import Sampler
from tui.keymap import bindings
from tui.screens.keys import KeysBar
from tui.widgets.sampler_form import SamplerForm


class SamplerScreen(ModalScreen[Sampler | None]):
    """The form; None when it was left without applying."""

    BINDINGS = bindings("sampler")

    def __init__(self, sampler: Sampler) -> None:
        super().__init__()
        self._sampler = sampler

    def compose(self) -> ComposeResult:
        """Form, complaint, keys."""
        with Vertical(id="sampler", classes="dialog") as box:
            box.border_title = "SAMPLER"
            yield SamplerForm(self._sampler)
            yield Static(Content("Penalties apply to greedy too."), id="complaint")
            yield KeysBar(["sampler"])

    def action_apply(self) -> None:
        """Check and leave."""
        try:
            self.dismiss(self.query_one(SamplerForm).value())
        except InspectError as error:
            complaint = self.query_one("#complaint", Static)
            complaint.update(Content(error.message))
            complaint.add_class("wrong")

    def action_cancel(self) -> None:
        """Leave as it was."""
        self.dismiss(None)
