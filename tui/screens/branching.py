"""What keys do at a step that may be a recorded one: branches, sampler, text, reads on its row.

A part of the main screen. Acting on a recorded step opens a branch there; reading changes nothing.
"""

from collections.abc import Coroutine
from typing import Final, Literal

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import Answer
from engine_daemon.protocol.events import PromptSet
from engine_daemon.protocol.reads import AskEncode, AskReroll, AskWhatIf
from engine_daemon.protocol.values import PromptSpec, Sampler
from tui.control import Control
from tui.overlay import Overlay, reroll, what_if
from tui.screens.arranging import where_hidden
from tui.screens.telling import Telling
from tui.source import EventSource
from tui.text import SafeText, show_text
from tui.view import View
from tui.widgets.sampler_words import sampler_words

DRAWS: Final = 1000
"""How often `R` draws when no count is typed."""


class BranchActions(Telling):
    """Actions of the main screen; what they need of it stands first."""

    view: View
    source: EventSource | None
    control: Control | None
    _count: str

    def _ready(self) -> Control | None:
        raise NotImplementedError

    def _ready_to(self, what: Literal["send", "act"]) -> Control | None:
        raise NotImplementedError

    def _do(self, intent: Coroutine[object, object, object]) -> object:
        raise NotImplementedError

    def _take_count(self) -> int:
        raise NotImplementedError

    def paint(self) -> None:
        """Draw what is visible again."""
        raise NotImplementedError

    # Branches ---------------------------------------------------------------------------------

    def action_resample(self) -> None:
        """Draw the step under the cursor again."""
        if control := self._ready():
            self._do(control.resample())

    def action_sampler(self) -> None:
        """Other settings from the pending step on."""
        from tui.screens.sampler import SamplerScreen

        if self._ready_to("act"):
            self.app.push_screen(SamplerScreen(self.view.columns.sampler), self._sampled)

    def _sampled(self, sampler: Sampler | None) -> None:
        if sampler is not None and self.control is not None:
            self._do(self._set_sampler(self.control, sampler))

    async def _set_sampler(self, control: Control, sampler: Sampler) -> None:
        await control.set_sampler(sampler)
        step = self.view.columns.place.step
        self.say(f"from step {step} on: {sampler_words(sampler)}", calm=True)

    def action_previous_branch(self) -> None:
        """Stand on the one before."""
        self._turn_branch(-1)

    def action_next_branch(self) -> None:
        """Stand on the next one."""
        self._turn_branch(1)

    def _turn_branch(self, by: int) -> None:
        columns = self.view.columns
        numbers = [one.id for one in columns.branches()]
        place = numbers.index(columns.branch) + by
        if control := self._ready():
            self._do(control.switch(numbers[place % len(numbers)]))

    def action_branches(self) -> None:
        """The table of them."""
        from tui.screens.branches import BranchesScreen

        screen = BranchesScreen(self.view.columns, self._how_to_branch())
        self.app.push_screen(screen, self._chose_branch)

    def _how_to_branch(self) -> SafeText:
        """What is said where there is one branch only."""
        if self.view.replay is not None:
            reason = " · ".join(show_text(line) for line in self.view.replay.reason.split("\n"))
            return SafeText(f"One branch: {reason}")
        if self.view.observing:
            return SafeText("One branch so far: this screen only observes")
        if self.view.read_only:
            return SafeText("One branch: made with another model, its history is read-only here")
        return SafeText("One branch so far: enter or i at a recorded step opens one")

    def _chose_branch(self, branch: int | None) -> None:
        if branch is not None and self.control is not None:
            self._do(self.control.switch(branch))

    # Text -------------------------------------------------------------------------------------

    def action_force_text(self) -> None:
        """Type what comes next."""
        from tui.screens.force_text import ForceTextScreen

        step = self.view.recorded_step
        where = "at the pending step" if step is None else f"on a branch at step {step}"
        if self._ready_to("act"):
            self.app.push_screen(ForceTextScreen(where), self._typed)

    def _typed(self, text: str | None) -> None:
        if text is not None:
            self._do(self.force_text(text))

    async def force_text(self, text: str) -> None:
        """Have the text tokenised, then force its ids."""
        if self.source is None or self.control is None:
            raise InspectError("not attached yet")
        answer = await self.source.ask(AskEncode(prompt=PromptSpec(text=text.encode())))
        event = None if answer.prompt is None else unpack_event(answer.prompt)
        if not isinstance(event, PromptSet):
            raise InspectError("this text cannot be tokenised")
        ids = [one.id for one in event.tokens() if not one.added]
        await self.control.force_text(ids)

    # Reads ------------------------------------------------------------------------------------

    def action_what_if(self) -> None:
        """Another sampler at the step under the cursor, without using it."""
        from tui.screens.sampler import SamplerScreen

        if self._ready():
            screen = SamplerScreen(self.view.columns.sampler, what_if=True)
            self.app.push_screen(screen, self._asked_what_if)

    def _asked_what_if(self, sampler: Sampler | None) -> None:
        if sampler is not None:
            self._do(self.what_if(sampler))

    async def what_if(self, sampler: Sampler) -> None:
        """Show the step under the cursor as that sampler would see it."""
        columns, step = self.view.columns, self.view.at
        branch, now = columns.branch, columns.sampler
        answer = await self._asked(AskWhatIf(sampler=sampler, step=step, branch=branch))
        if answer is not None and answer.figures is not None:
            self._lay_over(what_if(branch, step, now, answer.figures))

    def action_reroll(self) -> None:
        """Draw the step under the cursor many times; nothing is appended."""
        draws = self._take_count() if self._count else DRAWS
        if self._ready():
            self._do(self.reroll(draws))

    async def reroll(self, draws: int) -> None:
        """Show how often each token came."""
        columns, step = self.view.columns, self.view.at
        branch, now = columns.branch, columns.sampler
        answer = await self._asked(AskReroll(n=draws, step=step, branch=branch))
        if answer is not None and answer.tokens is not None:
            self._lay_over(reroll(branch, step, now, draws, answer.tokens))

    def action_recompute(self) -> None:
        """Have what a read needs, where it is gone."""
        if control := self._ready():
            self._do(control.recompute())

    async def _asked(self, ask: AskWhatIf | AskReroll) -> Answer | None:
        if self.source is None:
            return None
        try:
            return await self.source.ask(ask, self.view.session)
        except InspectError as error:
            if error.code != "gone":
                raise
            words = f"the logits of step {self.view.at} are not held any more"
            again = "" if self.view.read_only else "C computes them again"
            raise InspectError(words, again, code="gone") from error

    def _lay_over(self, overlay: Overlay) -> None:
        self.view.overlay = overlay
        self.paint()
        if hidden := where_hidden(self, "next-token"):
            self.say(f"{overlay.notes[-1]} · {hidden}", calm=True)
