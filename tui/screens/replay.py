"""The main screen on a recording: the cursor is the place in time, keys move it or let it play.

Whatever needs an engine is refused with the reason. Knows the view and a clock; what a pane shows
is the pane's.
"""

import time
from typing import ClassVar, Final

from textual.timer import Timer

from engine_daemon.errors import InspectError
from tui.control import Control
from tui.keymap import Scope, bindings
from tui.marks import next_mark
from tui.playing import Clock, Replay
from tui.recorded import RecordedSource
from tui.replay_actions import NEEDS_ENGINE
from tui.screens.main import MainScreen
from tui.source import EventSource
from tui.view import View

_FRAME_S: Final = 0.033
_IDLE_S: Final = 0.1
"""Between two looks at the clock where nothing is due: at the head of a file that grows."""
_OVER_S: Final = 1.0
"""Between two looks at whether somebody still writes it."""


class ReplayScreen(MainScreen):
    """Plays, steps and seeks; the recording may still grow."""

    BINDINGS = bindings("replay")
    SCOPES: ClassVar[list[Scope]] = ["replay", "main"]

    def __init__(self, view: View, recorded: RecordedSource, replay: Replay) -> None:
        super().__init__(view)
        self._recorded = recorded
        self._replay = view.replay = replay
        self._clock = Clock()
        self._timer: Timer | None = None
        self._written = recorded.columns.branch
        self._shown = self._written

    @property
    def unusable(self) -> frozenset[str]:
        """Whatever needs an engine."""
        return NEEDS_ENGINE

    def without(self) -> frozenset[str]:
        """Whatever needs an engine."""
        return NEEDS_ENGINE

    async def serve(self, source: EventSource) -> None:
        """Show the recording from its first step; one that grows, at its end."""
        recorded = self._recorded
        self.source, self.view.state = source, source.state
        self.feed = self.make_feed(source, self._grown)
        self.feed.follow(recorded.session, recorded.columns)
        recorded.before_more = self._to_written
        self._replay.growing = recorded.growing
        if not recorded.growing:
            self._show(0)
        self.set_interval(_OVER_S, self._look_whether_over)
        self.paint()
        await self.feed.run()

    def _look_whether_over(self) -> None:
        """Whoever wrote it may be gone without a word: then nothing is waited for."""
        if self._replay.growing and not self._recorded.growing:
            self._replay.growing = False
            self.paint()

    def _ready(self) -> Control | None:
        """There is no engine to command: say so."""
        self.say(self._replay.reason)
        return None

    # What is appended -------------------------------------------------------------------------

    def _to_written(self) -> None:
        """Events belong to the branch that is written; another one may be on screen."""
        columns = self.view.columns
        self._shown = columns.branch
        if columns.has_branch(self._written):
            columns.go_to(self._written)

    async def _grown(self) -> None:
        """They are folded: back to the branch on screen, unless they are what is followed."""
        columns = self.view.columns
        followed = self.view.cursor is None and self._shown == self._written
        self._written = columns.branch
        if not followed:
            columns.go_to(self._shown)
        self._replay.growing = self._recorded.growing
        self.view.state = self._recorded.state
        self._schedule()

    # Playing ----------------------------------------------------------------------------------

    def action_run_or_pause(self) -> None:
        """Play from here, from the start at the end; or pause."""
        self._set_count("")
        replay = self._replay
        if replay.playing:
            self._pause()
        else:
            if self.view.at_head and not replay.growing:
                self._show(0)
            replay.playing = True
            self._restart()
        self.paint()

    def _pause(self) -> None:
        self._replay.playing = False
        self._schedule()

    def _restart(self) -> None:
        """The clock goes on from the step that is shown."""
        self._clock.set(self.view.at, time.monotonic())
        self._schedule()

    def _schedule(self) -> None:
        """Look again when the next step is due."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        replay, view = self._replay, self.view
        if replay.playing:
            now = time.monotonic()
            wait = self._clock.wait_s(view.columns, view.head, replay.speed, now)
            pause = _IDLE_S if wait is None else max(wait, _FRAME_S)
            self._timer = self.set_timer(pause, self._tick)

    def _tick(self) -> None:
        self._timer = None
        replay, view = self._replay, self.view
        if not replay.playing:
            return
        step = self._clock.due(view.columns, view.head, replay.speed, time.monotonic())
        if step != view.at:
            self._show(step)
            if self.feed is not None:
                self.feed.changed()
        if view.at_head and not replay.growing:
            replay.playing = False
            self.paint()
        self._schedule()

    def _show(self, step: int) -> None:
        """The cursor there, with the step's events: the file is at hand, nothing is waited for."""
        view = self.view
        view.move(step)
        if view.at < len(view.columns):
            view.keep(self._recorded.events_of(view.columns, view.at))

    def _look(self, step: int) -> None:
        """Seek; what plays goes on from there."""
        self._show(step)
        super()._look(step)
        self._restart()

    def action_step(self) -> None:
        """One step on."""
        count = self._take_count()
        if self.view.at_head:
            self.say("this is where the recording ends", calm=True)
            return
        self._pause()
        self._look(self.view.at + count)

    def action_back(self) -> None:
        """One step back."""
        self._pause()
        super().action_back()

    def action_faster(self) -> None:
        """Twice as fast."""
        self._change_speed(1)

    def action_slower(self) -> None:
        """Half as fast."""
        self._change_speed(-1)

    def _change_speed(self, places: int) -> None:
        self._set_count("")
        self._replay.faster(places)
        self._restart()
        self.paint()

    def action_interrupt(self) -> None:
        """Pause what plays."""
        if self._replay.playing:
            self._pause()
            self.paint()
        else:
            self.say("q leaves the replay", calm=True)

    # Looking ----------------------------------------------------------------------------------

    def action_next_mark(self) -> None:
        """To where something is."""
        self._to_mark(1)

    def action_previous_mark(self) -> None:
        """To where something was."""
        self._to_mark(-1)

    def _to_mark(self, by: int) -> None:
        self._set_count("")
        found = next_mark(self.view.columns, self.view.at, by)
        if found is None:
            where = "after" if by > 0 else "before"
            self.say(f"no condition, note or branch {where} this step", calm=True)
            return
        step, words = found
        self._look(step)
        self.say(f"step {step}: {words}", calm=True)

    def action_unveil(self) -> None:
        """Show what comes after this step, or hide it again."""
        self._set_count("")
        self._replay.veiled = not self._replay.veiled
        self.paint()

    def action_choose(self) -> None:
        """Nothing can be forced."""
        self._ready()

    def action_sessions(self) -> None:
        """There is one only."""
        self._ready()

    # Branches ---------------------------------------------------------------------------------

    def _turn_branch(self, by: int) -> None:
        columns = self.view.columns
        numbers = [one.id for one in columns.branches()]
        if len(numbers) == 1:
            self.say("the recording has one branch", calm=True)
            return
        self._chose_branch(numbers[(numbers.index(columns.branch) + by) % len(numbers)])

    def _chose_branch(self, branch: int | None) -> None:
        """Another path, at the step where it leaves or the one shown, whichever comes first."""
        if branch is None:
            return
        columns, at = self.view.columns, self.view.at
        if branch == columns.branch:
            self.say(f"already on branch {branch}", calm=True)
            return
        columns.go_to(branch)
        start = columns.start(branch)
        self._look(min(at, start) if columns.start(branch) else at)


def replay_of(recorded: RecordedSource, reason: InspectError) -> Replay:
    """What the screen says of this recording."""
    recording = recorded.recording
    return Replay(
        name=recording.path.name,
        reason=reason.lines(),
        growing=recorded.growing,
        missing=recording.state == "damaged",
    )
