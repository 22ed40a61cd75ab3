"""New prompt: text, chat template or not, KV cache or not, sampler. Shows how many tokens it is.

Gives back an `Open` command; sends nothing itself.
"""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Open
from engine_daemon.protocol.values import PromptSpec, Sampler
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, show_text, token
from tui.widgets.safe_area import SafeTextArea
from tui.widgets.sampler_form import SamplerForm
from tui.widgets.toggle import Toggle
from tui.widgets.typed_ahead import TypedAhead

_KEYS = "enter: new line · tab: next field · ctrl+s opens"
CountTokens = Callable[[PromptSpec], Awaitable[int]]


class PromptScreen(TypedAhead, Dialog[Open | None]):
    """A multi-line prompt and its settings; None when it was left."""

    BINDINGS = bindings("prompt")
    LINE = "#prompt-text"

    def __init__(self, template: Open, count_tokens: CountTokens) -> None:
        super().__init__()
        self._template = template
        self._count_tokens = count_tokens

    def compose(self) -> ComposeResult:
        """Prompt above, settings below."""
        prompt = self._template.prompt
        with Vertical(id="prompt", classes="dialog") as box:
            box.border_title = "NEW PROMPT"
            area = SafeTextArea(
                prompt.text.decode("utf-8", "surrogateescape"),
                id="prompt-text",
                tab_behavior="focus",
            )
            area.border_title = "prompt"
            area.border_subtitle = _KEYS
            yield area
            hint = SafeText("wrap it as a user's message")
            yield Toggle(SafeText("chat template"), hint, prompt.template, "template")
            system = SafeTextArea(
                (prompt.system or b"").decode("utf-8", "surrogateescape"),
                id="system-text",
                tab_behavior="focus",
            )
            system.border_title = "system message, with the template"
            yield system
            hint = SafeText("off: each step reads the whole sequence again")
            kept = self._template.cache_mode == "kv"
            yield Toggle(SafeText("KV cache"), hint, kept, "kv-cache")
            yield SamplerForm(self._template.sampler)
            yield Static(Content(""), id="complaint")
            yield KeysBar(["prompt"])

    def on_mount(self) -> None:
        """The prompt has the focus, all of it selected: typing replaces it, cursor keys keep it."""
        area = self.query_one("#prompt-text", SafeTextArea)
        area.focus()
        area.select_all()
        self._template_changed()

    def on_toggle_changed(self) -> None:
        """The template goes with its system message."""
        self._template_changed()

    def on_text_area_changed(self) -> None:
        """Count again."""
        self._count()

    def on_sampler_form_changed(self) -> None:
        """What was wrong may be right now."""
        if self.query_one("#complaint").has_class("wrong") and self._sampler() is not None:
            self._count()

    def _sampler(self) -> Sampler | None:
        """What is typed; None when it cannot be, which is said then."""
        try:
            return self.query_one(SamplerForm).value()
        except InspectError as error:
            self._say(show_text(error.message), wrong=True)
            return None

    def _template_changed(self) -> None:
        on = self.query_one("#template", Toggle).value
        self.query_one("#system-text", SafeTextArea).display = on
        self._count()

    def _spec(self) -> PromptSpec:
        template = self.query_one("#template", Toggle).value
        system = self.query_one("#system-text", SafeTextArea).text
        return PromptSpec(
            text=_bytes(self.query_one("#prompt-text", SafeTextArea).text),
            template=template,
            system=_bytes(system) if template and system else None,
            specials=self._template.prompt.specials,
        )

    @work(exclusive=True, group="count", exit_on_error=False)
    async def _count(self) -> None:
        """Say how many tokens the prompt comes to; a newer text supersedes the question."""
        spec = self._spec()
        if not spec.text:
            self._say(SafeText(""))
            return
        try:
            tokens = await self._count_tokens(spec)
            self._say(SafeText(" · ".join([f"{tokens} tokens", *self._taken_over()])))
        except InspectError as error:
            self._say(show_text(error.message))

    def _taken_over(self) -> list[str]:
        """What the new session has from the one on screen and no field here shows."""
        stops = ", ".join(map(show_text, self._template.until))
        watched = ", ".join(map(token, self._template.watch))
        return [f"stops at {stops}"] * bool(stops) + [f"watches {watched}"] * bool(watched)

    def _say(self, words: SafeText, wrong: bool = False) -> None:
        complaint = self.query_one("#complaint", Static)
        complaint.update(Content(words))
        complaint.set_class(wrong, "wrong")

    def action_open_session(self) -> None:
        """Check and leave with the command."""
        spec = self._spec()
        if not spec.text and not spec.template:
            self._say(SafeText("The prompt is empty: type one"), wrong=True)
            return
        if (sampler := self._sampler()) is not None:
            kept = self.query_one("#kv-cache", Toggle).value
            command = replace(self._template, prompt=spec, sampler=sampler, title="", run_to=0)
            self.dismiss(replace(command, cache_mode="kv" if kept else "none"))

    def action_cancel(self) -> None:
        """Leave without a session."""
        self.dismiss(None)


def _bytes(text: str) -> bytes:
    """What was there before somebody typed comes back byte for byte."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
