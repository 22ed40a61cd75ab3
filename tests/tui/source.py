"""A source that plays a daemon for screens.

Not an integration with anything: the real daemon is driven in tests/end_to_end.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import msgspec

from engine_daemon.client import LinkLost, LinkUp, Update
from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.commands import (
    AddCondition,
    Answer,
    AnyCommand,
    At,
    Batch,
    Force,
    Note,
    Open,
    Pause,
    RemoveCondition,
    Reply,
    RunTo,
    SetSampler,
    StateMessage,
    Switch,
)
from engine_daemon.protocol.events import (
    ConditionAdded,
    ConditionRemoved,
    Noted,
    SamplerSet,
)
from engine_daemon.protocol.reads import AnyAsk, AskCondition, AskEncode, AskEvents
from engine_daemon.protocol.state import State
from engine_daemon.protocol.viewing import LeaseWord
from tests.tui.story import SESSION, Story, state


class FakeSource:
    """Plays the daemon of a `Story`: keeps what it was sent, answers reads from the log."""

    def __init__(self, story: Story, first: State | None = None) -> None:
        self.story = story
        self.state = first or state()
        self.sent: list[tuple[AnyCommand, str | None, At | None]] = []
        self.asked: list[AnyAsk] = []
        self.refuse: InspectError | None = None
        self.refuse_condition: InspectError | None = None
        self.conditions = 0
        self.answer: Answer | None = None
        self.followed: dict[str, int] = {}
        self.leased: list[tuple[LeaseWord, str]] = []
        self.number = 0
        self.observer = False
        self._queue: asyncio.Queue[Update] = asyncio.Queue()
        self._answers: asyncio.Event = asyncio.Event()
        self._answers.set()

    @property
    def observes(self) -> bool:
        """By default it may command."""
        return self.observer

    @property
    def me(self) -> bytes | None:
        return self.state.viewers[0].viewer if self.state.viewers else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to give back."""

    async def command(
        self, do: AnyCommand, session: str | None = None, at: At | None = None
    ) -> Reply:
        self.sent.append((do, session, at))
        if self.refuse is not None:
            raise self.refuse
        self._act(do)
        name = SESSION if isinstance(do, Open) else session
        return Reply(cmd=b"c" * 16, status="accepted", session=name)

    def _act(self, do: AnyCommand) -> None:
        """The least that a daemon would log."""
        match do:
            case RunTo(step=None):
                self.story.command("run_to", None)
            case RunTo(step=goal) if goal is not None:
                self.story.command("run_to", goal)
                while self.story.step < goal:
                    self.story.pick(40 + self.story.step, b" tok", 0.4).predict()
                self.story.stop()
            case Pause():
                self.story.stop("pause")
            case Force(id=token_id):
                if do.step is not None:
                    self.story.branch(do.step)
                self.story.command("force").pick(token_id, b" forced", 0.01, how="forced", rank=9)
                self.story.predict().stop()
            case SetSampler(sampler=sampler):
                self.story.add(SamplerSet(t_ns=1, wall_ns=1, step=self.story.step, sampler=sampler))
                self.story.predict(sampled=not sampler.greedy)
            case AddCondition(source=source):
                self.conditions += 1
                added = ConditionAdded(t_ns=1, wall_ns=1, number=self.conditions, source=source)
                self.story.add(added)
            case RemoveCondition(number=number):
                self.story.add(ConditionRemoved(t_ns=1, wall_ns=1, number=number))
            case Note(text=text, step=step, branch=branch):
                self.story.add(
                    Noted(
                        t_ns=1, wall_ns=1, step=step or 0, branch=branch or 0, who="me", text=text
                    )
                )
            case Switch(branch=branch):
                self.story.switch(branch)
            case _:
                pass
        self.flush()

    async def ask(self, ask: AnyAsk, session: str | None = None) -> Answer:
        self.asked.append(ask)
        await self._answers.wait()
        match ask:
            case AskEvents(seqs=seqs):
                return Answer(ev=[(seq, self.story.log[seq]) for seq in seqs])
            case AskEncode():
                return Answer(prompt=pack_event(self.story._prompt_set()))
            case AskCondition() if self.refuse_condition is not None:
                raise self.refuse_condition
            case AskCondition():
                return Answer()
            case _ if self.answer is not None:
                return self.answer
            case _:
                raise InspectError("not here", code="gone")

    async def lease(self, do: LeaseWord, session: str) -> Reply:
        self.leased.append((do, session))
        if self.refuse is not None:
            raise self.refuse
        self.number = 0 if do == "release" else self.hold("me@here")
        if do == "release":
            self.hold(None)
        return Reply(cmd=b"l" * 16, status="accepted", session=session, lease_no=self.number)

    def hold(self, who: str | None) -> int:
        """Somebody has the lease from here on; its number."""
        info = self.state.sessions[0]
        number = info.lease_no + (who is not None)
        info = msgspec.structs.replace(info, holder=who, lease_no=number)
        self.set_state(msgspec.structs.replace(self.state, sessions=[info]))
        return number

    def holds(self, session: str | None) -> bool:
        return self.number > 0 and session == SESSION

    def hold_answers(self) -> None:
        """No answer to a read from here on."""
        self._answers.clear()

    def let_answers_go(self) -> None:
        """Answer what was held back."""
        self._answers.set()

    def follow(self, session: str, start: int = 0, *, snapshot: bool = False) -> None:
        self.followed[session] = start
        self.flush()

    def unfollow(self, session: str) -> None:
        self.followed.pop(session, None)

    def flush(self) -> None:
        """Send what a follower does not have yet."""
        if SESSION in self.followed:
            start, head = self.followed[SESSION], len(self.story.log)
            events = [(seq, self.story.log[seq]) for seq in range(start, head)]
            self.followed[SESSION] = head
            self.tell(
                Batch(session=SESSION, start=start, to=head, head=head, durable=head, ev=events)
            )

    def tell(self, update: Update) -> None:
        """One update."""
        self._queue.put_nowait(update)

    def set_state(self, new: State) -> None:
        """Another state."""
        self.state = new
        self.tell(StateMessage(state=new))

    def lose_link(self) -> None:
        """The daemon is away."""
        self.tell(LinkLost("the daemon is gone", "llm-inspect daemon start brings it back"))

    def mend_link(self) -> None:
        """It is back, the same one."""
        self.tell(LinkUp(False))

    async def updates(self) -> AsyncIterator[list[Update]]:
        while True:
            first = await self._queue.get()
            batch = [first]
            while not self._queue.empty():
                batch.append(self._queue.get_nowait())
            yield batch
