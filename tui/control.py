"""What keys mean: intents turned into commands with absolute goals and a guard.

A key pressed while the daemon cannot be reached is refused, never sent later. Knows the view and
the source; no widgets.
"""

from typing import Final

from engine_daemon.errors import InspectError, not_sent
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import (
    AddCondition,
    AnyCommand,
    At,
    CheckWeights,
    Close,
    Force,
    ForceText,
    KillEngine,
    MeasureNaive,
    Note,
    Open,
    Pause,
    Recompute,
    RemoveCondition,
    Reply,
    Resample,
    RunTo,
    SetSampler,
    Switch,
    next_chunk,
)
from engine_daemon.protocol.events import PromptSet, Stopped
from engine_daemon.protocol.reads import AskCondition, AskEncode, AskStacks
from engine_daemon.protocol.values import PromptSpec, Sampler
from engine_daemon.protocol.viewing import LeaseWord
from engine_daemon.recording.columns import Columns
from tui.source import EventSource
from tui.view import View

MOST_LENGTHS: Final = 64
"""Of one command to measure."""


class Control:
    """Commands of one viewer. Every method raises InspectError with what to say to the person."""

    def __init__(self, source: EventSource, view: View, *, observe: bool = False) -> None:
        self._source = source
        self._view = view
        self._observe = observe
        self._owed = 0
        self._stood: tuple[Columns, Stopped | None] | None = None
        self._sending = False

    @property
    def here(self) -> At:
        """Where this viewer believes the session to be."""
        place = self._view.columns.place
        return At(branch=place.branch, step=place.step)

    def check_link(self) -> None:
        """Raise InspectError where nothing can be sent."""
        if self._observe:
            raise InspectError("this screen only observes", code="observer")
        if not self._view.link:
            raise not_sent()

    async def _send(self, do: AnyCommand, at: At | None = None) -> Reply:
        self.check_link()
        return await self._source.command(do, session=self._view.session, at=at)

    def _need_session(self) -> None:
        if self._view.session is None:
            raise InspectError("no session yet", "ctrl+n opens one")
        status = self._view.columns.status
        if status == "closed":
            raise InspectError(
                "this session is closed",
                f"llm-inspect open {self._view.session} goes on with it, ctrl+n opens another",
            )
        if self._view.read_only:
            raise InspectError(
                "this session was made with another model; its history is read-only here",
                code="other_model",
            )
        if status == "waiting":
            raise InspectError("the first distribution is not there yet")

    async def run_or_pause(self) -> str | None:
        """Run what stands, pause what runs; what to say where that runs on without a limit."""
        self._owed = 0
        if self._view.busy:
            await self._send(Pause())
            return None
        self._need_session()
        if self._view.running:
            await self._send(Pause())
            return None
        place, limits = self._view.columns.place, self._view.columns.limits
        await self._send(RunTo(step=None), self.here)
        most = None if limits is None else limits.max_steps
        if most is None or place.kind != "ended" or place.reason != "length":
            return None
        steps = f"{most} step{'' if most == 1 else 's'}"
        return f"past the limit of {steps}: runs on to EOS or a full context; space pauses"

    async def pause(self) -> bool:
        """Pause if it runs; False when there was nothing to pause."""
        self._owed = 0
        if self._view.session is None or not (self._view.running or self._view.busy):
            return False
        await self._send(Pause())
        return True

    async def step(self, count: int = 1) -> None:
        """Commit `count` tokens at the head.

        Steps asked for while one is under way are added up and follow it; a pause, a refusal or a
        lost link forgets them.
        """
        self._need_session()
        if self._under_way():
            self._owed += count
            return
        if self._view.running:
            raise InspectError("it is running", "space pauses it")
        place = self._view.columns.place
        first = 1 if place.kind == "pending" else 0
        goal = place.step + first + count - 1
        do = RunTo(step=goal)
        if place.kind == "prefill":
            do = next_chunk(place, count)
        columns = self._view.columns
        self._stood, self._sending = (columns, columns.stop), True
        try:
            await self._send(do, self.here)
        except InspectError:
            self.forget()
            raise
        finally:
            self._sending = False

    def _under_way(self) -> bool:
        """A step of ours was sent, and the log does not yet say that the session stands again.

        Only that counts: whatever anybody sends meanwhile, the screen shows the same.
        """
        if self._sending or self._stood is None:
            return self._sending
        columns, stood = self._stood
        stop = self._view.columns.stop
        same = self._view.columns is columns and not columns.closed
        if same and (stop is None or stop is stood):
            return True
        self._stood = None
        return False

    def forget(self) -> None:
        """Whatever was still to be stepped is not any more."""
        self._owed, self._stood = 0, None

    async def carry_on(self) -> None:
        """After events came: steps that were asked for meanwhile. Does nothing mostly."""
        if self._owed and not self._under_way():
            columns = self._view.columns
            stopped = columns.stop
            owed, self._owed = self._owed, 0
            if stopped is not None and stopped.reason == "goal" and columns.status == "paused":
                await self.step(owed)

    def _need_standing(self) -> int | None:
        """The recorded step under the cursor, None for the pending one; it must stand."""
        self._need_session()
        if self._view.running:
            raise InspectError("it is running", "space pauses it")
        if self._under_way():
            raise InspectError("a step is under way")
        return self._view.recorded_step

    def check_standing(self) -> None:
        """Raise InspectError where nothing can be done at the step under the cursor."""
        self.check_link()
        self._need_standing()

    async def force(self, token_id: int) -> None:
        """Append this id at the step under the cursor; a recorded one opens a branch."""
        step = self._need_standing()
        if step is None and not self._view.on_pending:
            raise InspectError("nothing is pending here", "s makes the next distribution")
        if step is not None and self._view.columns.ids[step] == token_id:
            raise InspectError(
                f"step {step} has this token already: a branch would say the same again",
                "enter on another one opens a branch",
            )
        await self._act(Force(id=token_id, step=step))

    async def force_text(self, ids: list[int]) -> None:
        """Append these ids, likewise."""
        await self._act(ForceText(ids=ids, step=self._need_standing()))

    async def resample(self) -> None:
        """Draw the step under the cursor again, likewise."""
        await self._act(Resample(step=self._need_standing()))

    async def recompute(self) -> str:
        """Have the logits row of the step under the cursor made again; what to say of it."""
        self._need_standing()
        step = self._view.at
        await self._send(Recompute(step=step, branch=self._view.columns.branch), self.here)
        return f"step {step} is computed again; then R and w read it"

    async def measure_naive(self, count: int) -> None:
        """Measure forwards without cache at `count` lengths, evenly up to the cursor."""
        self._need_session()
        if self._view.running:
            raise InspectError("it is running", "space pauses it")
        total = len(self._view.prompt) + self._view.at
        count = max(1, min(count, total, MOST_LENGTHS))
        lengths = [max(1, total * k // count) for k in range(1, count + 1)]
        await self._send(MeasureNaive(lengths=lengths))

    async def check_weights(self) -> str:
        """Have the parameters in memory summed; what to say when that has begun."""
        self.check_link()
        await self._source.command(CheckWeights())
        return "the weights in memory are summed; CACHE says what came of it"

    async def stacks(self) -> str:
        """Where the ranks of the worker are."""
        return (await self._source.ask(AskStacks())).text or ""

    async def end_engine(self) -> None:
        """End the worker, whatever it is at."""
        self.check_link()
        await self._source.command(KillEngine())

    async def set_sampler(self, sampler: Sampler) -> None:
        """Another sampler from the step under the cursor on, likewise."""
        await self._act(SetSampler(sampler=sampler, step=self._need_standing()))

    async def switch(self, branch: int) -> None:
        """Stand on another branch, at its end."""
        self.check_link()
        self._need_standing()
        if branch == self._view.columns.branch:
            if len(self._view.columns.branches()) > 1:
                raise InspectError(f"already on branch {branch}")
            raise InspectError("there is no other branch", "enter on a recorded step opens one")
        await self._act(Switch(branch=branch))

    async def _act(self, do: AnyCommand) -> None:
        """Send, and follow the head from here on."""
        await self._send(do, self.here)
        self._goal = None
        self._view.cursor = None

    async def add_condition(self, source: str) -> None:
        """Stop where this becomes true, also while it runs. Whether it can be used is asked first:
        the command itself is answered before that is known."""
        self._need_session()
        await self._source.ask(AskCondition(source=source), self._view.session)
        await self._send(AddCondition(source=source))

    async def remove_condition(self, number: int) -> None:
        """This one stops nothing any more."""
        self._need_session()
        await self._send(RemoveCondition(number=number))

    async def open(self, command: Open) -> str:
        """Open a session and give its name."""
        self.check_link()
        reply = await self._source.command(command)
        if reply.session is None:
            raise InspectError("the daemon opened no session", code="no_session")
        return reply.session

    async def lease(self, do: LeaseWord, words: str) -> str:
        """Hand the lease of the session on screen over; what to say when it is done."""
        session = self._view.session
        if session is None:
            raise InspectError("no session yet", "ctrl+n opens one")
        self.check_link()
        self._owed = 0
        await self._source.lease(do, session)
        return words

    async def note(self, text: str, branch: int, step: int) -> str:
        """Write a note at a step; what to say when it is written."""
        await self._send(Note(text=text, branch=branch, step=step))
        return f"note written at step {step}"

    async def count_tokens(self, spec: PromptSpec) -> int:
        """How many tokens a prompt comes to."""
        answer = await self._source.ask(AskEncode(prompt=spec))
        event = None if answer.prompt is None else unpack_event(answer.prompt)
        return len(event.ids) // 4 if isinstance(event, PromptSet) else 0

    async def close(self, session: str) -> None:
        """Close a session; its recording stays."""
        self.check_link()
        await self._source.command(Close(), session=session)
