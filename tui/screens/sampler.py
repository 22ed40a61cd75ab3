"""Sampler settings: change how the next id is picked, from the pending step on.

Gives back a sampler; sends nothing itself.
"""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from engine_daemon.errors import InspectError
from engine_daemon.protocol.values import Sampler
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.widgets.sampler_form import SamplerForm


class SamplerScreen(Dialog[Sampler | None]):
    """The form; None when it was left without applying."""

    BINDINGS = bindings("sampler")

    def __init__(self, sampler: Sampler, *, what_if: bool = False) -> None:
        super().__init__()
        self._sampler = sampler
        self._what_if = what_if

    def compose(self) -> ComposeResult:
        """Form, complaint, keys."""
        with Vertical(id="sampler", classes="dialog") as box:
            box.border_title = "WHAT IF" if self._what_if else "SAMPLER"
            yield SamplerForm(self._sampler)
            yield Static(Content(self._words()), id="complaint")
            yield KeysBar(["sampler"])

    def _words(self) -> str:
        effect = "Shown beside the step; nothing is changed." if self._what_if else ""
        return " ".join(filter(None, (effect, "Penalties apply to greedy too.")))

    def _checked(self) -> Sampler | None:
        """What is typed; None when it cannot be, which is said then."""
        complaint = self.query_one("#complaint", Static)
        sampler, words = None, self._words()
        try:
            sampler = self.query_one(SamplerForm).value()
        except InspectError as error:
            words = error.message
        complaint.update(Content(words))
        complaint.set_class(sampler is None, "wrong")
        return sampler

    def on_sampler_form_changed(self) -> None:
        """What was wrong may be right now."""
        if self.query_one("#complaint").has_class("wrong"):
            self._checked()

    def action_apply(self) -> None:
        """Check and leave."""
        if (sampler := self._checked()) is not None:
            self.dismiss(sampler)

    def action_cancel(self) -> None:
        """Leave as it was."""
        self.dismiss(None)
