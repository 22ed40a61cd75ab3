"""The first line of the screen: model, state, speed, or what stands in the way of it.

Knows the view; nothing of panes beside their base.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from rich.segment import Segment

from engine_daemon.protocol.events import Stopped
from engine_daemon.protocol.state import EngineState
from engine_daemon.stages import stage_text
from tui.naming import holder_text
from tui.panes.base import Line, Pane, spread
from tui.playing import Elapsed
from tui.screens.replay_status import replay_right, replay_state
from tui.text import SafeText, clip, show_text, size, tail, width
from tui.view import View

_TRACK = 20
_LEAST_TRACK = 6
_LONGEST_WHY = 40
_LONGEST_WHO = 20
_LONGEST_WHERE: Final = 24
_LONGEST_NAME, _CUT_NAME, _SHORTEST_NAME = 32, 16, 8
"""Cells of the model's name: it is cut before anybody else's part goes."""
_LEAST_LEASE = 9
"""Cells from which on a cut lease is worth showing."""
_WORDS = {
    "waiting": "… WAITING",
    "paused": "‖ PAUSED",
    "running": "● LIVE",
    "ended": "■ ENDED",
    "closed": "□ CLOSED",
}


_SILENT = ("goal", "pause", "eos", "length", "context")
"""Reasons to stand that need no word, or have it already."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is room for; at first what is never left out."""

    where: bool = False
    badge: bool = False
    lease: bool = False
    people: bool = False
    rate: bool = False
    hint: bool = False
    device: bool = False
    file: bool = False
    times: bool = False
    name: int = _SHORTEST_NAME


_BY_PRIORITY: Final[tuple[dict[str, Any], ...]] = (
    {"where": True},
    {"lease": True},
    {"badge": True},
    {"times": True},
    {"file": True},
    {"people": True},
    {"name": _CUT_NAME},
    {"name": _LONGEST_NAME},
    {"hint": True},
    {"rate": True},
    {"device": True},
)
"""Each is shown where there is room beside those before it."""


class StatusBar(Pane):
    """model · dtype · device×ranks · state · viewers · tok/s."""

    FOCUSABLE: ClassVar[bool] = False

    def __init__(self, view: View, pane_id: str) -> None:
        super().__init__(view, pane_id)
        self._elapsed = Elapsed()

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """One row; trouble takes the place of everything else."""
        trouble = self._trouble(columns)
        if trouble is not None:
            return [trouble]
        rate, shown = self._rate(), Shown()
        for more in _BY_PRIORITY:
            wider = replace(shown, **more)
            if (
                sum(width(part.text) for side in self._sides(wider, rate) for part in side)
                < columns
            ):
                shown = wider
        left, right = self._sides(shown, rate)
        if not shown.lease and self.view.replay is None and (lease := self._lease()):
            room = columns - sum(width(part.text) for part in left) - 1
            words = clip(lease, room) if room >= _LEAST_LEASE else SafeText("…"[: max(room, 0)])
            right = [Segment(words, self.palette.accent)]
        return [spread(left, right, columns, self.palette)]

    def _sides(self, shown: Shown, rate: str) -> tuple[Line, Line]:
        if self.view.replay is None:
            return [*self._model(shown), *self._state(shown.hint)], self._right(shown, rate)
        right = replay_right(
            self.view,
            self.palette,
            self._elapsed,
            rate if shown.rate else "",
            name=shown.file,
            times=shown.times,
        )
        return [*self._model(shown), *replay_state(self.view, self.palette)], right

    def _rate(self) -> str:
        speed = self.view.speed()
        return "– tok/s" if speed is None else f"{speed:.1f} tok/s"

    def _trouble(self, columns: int) -> Line | None:
        palette, engine = self.palette, self.view.engine
        if not self.view.link:
            return self._link_lost(columns)
        if engine is None:
            return [Segment(" llm-inspect ", palette.badge), Segment(" attaching …", palette.muted)]
        if engine.word == "dead":
            said = " · ".join(part for part in (engine.message, engine.hint) if part)
            return self._alarm("ENGINE DEAD", f" {show_text(said)}", columns)
        if engine.word == "stuck":
            asked = " · pause is asked" if self.view.pausing else ""
            words = f" {show_text(engine.message)}{asked} · E looks into it"
            return self._alarm("ENGINE STUCK", words, columns)
        if engine.word in ("starting", "loading"):
            return self._loading(engine, columns)
        if self.view.info is not None and self.view.info.trouble:
            return self._not_written(self.view.info.trouble, columns)
        return None

    def _not_written(self, trouble: str, columns: int) -> Line:
        """Not even the stop is in the log then: nothing else on the screen would tell. Of a long
        path the end is shown, and why."""
        badge, hint = "NOT WRITTEN", " · free some space, then go on"
        room = columns - width(SafeText(badge)) - 3
        said = show_text(trouble)
        if width(said) + len(hint) <= room:
            said = SafeText(said + hint)
        return self._alarm(badge, f" {tail(said, room)}", columns)

    def _link_lost(self, columns: int) -> Line:
        """Why, and what brings it back; then what else there is room for."""
        badge, view = "LINK LOST", self.view
        parts = [view.link_text, view.link_hint, "trying again", "keys are not sent meanwhile"]
        words = " " + show_text(parts[0])
        for part in filter(None, parts[1:]):
            longer = f"{words} · {show_text(part)}"
            if part == view.link_hint or width(longer) + len(badge) + 2 <= columns:
                words = longer
        return self._alarm(badge, words, columns)

    def _alarm(self, badge: str, words: str, columns: int) -> Line:
        head = f" {badge} "
        return [
            Segment(head, self.palette.alarm),
            Segment(clip(SafeText(words), columns - len(head)), self.palette.error),
        ]

    def _loading(self, engine: EngineState, columns: int) -> Line:
        palette = self.palette
        name = show_text(engine.model_name) if engine.model_name else SafeText("the model")
        stage = show_text(stage_text(engine.stage))
        line = [
            Segment(" llm-inspect ", palette.badge),
            Segment(f" {clip(name, 28)} ", palette.title),
            Segment(f" {stage} ", palette.accent),
        ]
        amount: Line = []
        if engine.total:
            amount = [Segment(f" {size(engine.done)} of {size(engine.total)}", palette.muted)]
        elif engine.done:
            amount = [Segment(size(engine.done), palette.muted)]
        if sum(width(part.text) for part in (*line, *amount)) + _TRACK > columns:
            line = line[1:]
        if engine.total:
            room = columns - sum(width(part.text) for part in (*line, *amount))
            line += self._track(min(engine.done / engine.total, 1.0), min(room, _TRACK))
        return [*line, *amount]

    def _track(self, share: float, cells: int) -> Line:
        """A bar that is filled to this share; none where it would say little."""
        if cells < _LEAST_TRACK:
            return []
        full = round(share * cells)
        return [
            Segment("━" * full, self.palette.plot),
            Segment("─" * (cells - full), self.palette.muted),
        ]

    def _model(self, shown: Shown) -> Line:
        palette, engine = self.palette, self.view.made_by
        line = [Segment(" llm-inspect ", palette.badge)] if shown.badge else []
        if shown.where and self.view.where:
            where = clip(show_text(self.view.where), _LONGEST_WHERE)
            line.append(Segment(f" {where} ", palette.accent))
        model = None if engine is None else engine.model
        if model is None:
            return line
        line.append(Segment(f" {clip(show_text(model.name), shown.name)}", palette.title))
        if shown.device:
            device = f"{show_text(model.device)}×{model.ranks}"
            line.append(Segment(f" · {show_text(model.dtype)} · {device}", palette.muted))
        return line

    def _state(self, hint: bool) -> Line:
        palette, columns = self.palette, self.view.columns
        line: Line = [Segment("  ", palette.base)]
        engine = self.view.made_by
        if engine is not None and engine.synthetic:
            line += [Segment(" SYNTHETIC ", palette.mark_badge), Segment(" ", palette.base)]
        for so, word in ((self.view.observing, "OBSERVING"), (self.view.read_only, "READ-ONLY")):
            if so:
                line += [Segment(f" {word} ", palette.badge_quiet), Segment(" ", palette.base)]
        if self.view.session is None:
            return line
        status = columns.status
        style = palette.lit if status == "running" else palette.badge_quiet
        line.append(Segment(f" {_WORDS[status]} ", style))
        if self.view.pausing:
            line.append(Segment(" pausing", palette.accent))
        if self.view.behind.shown:
            words = f" {self.view.behind.words} · G jumps to the head "
            line += [Segment(" ", palette.base), Segment(words, palette.alarm)]
        place = columns.place
        if place.kind == "prefill":
            line.append(Segment(f" prefill {place.done} of {place.total}", palette.accent))
        if status == "ended":
            line.append(Segment(f" {place.reason}", palette.accent))
        if (several := len(columns.branches())) > 1:
            words = f" branch {columns.branch} ({several} branches)"
            line.append(Segment(words, palette.title))
        if self.view.cursor is not None:
            line.append(Segment(f" step {self.view.at} of {self.view.head}", palette.accent))
        elif self.view.read_only:
            line.append(Segment(" made with another model" if hint else "", palette.accent))
        elif columns.stop is not None and columns.stop.condition is not None:
            line.append(Segment(f" {self._why(columns.stop, hint)}", palette.accent))
        elif status == "ended" and hint:
            line.append(Segment(self._how_on(), palette.muted))
        elif columns.stop is not None and columns.stop.reason not in _SILENT:
            line.append(Segment(f" {self._why(columns.stop, hint)}", palette.accent))
        return line

    def _why(self, stop: Stopped, whole: bool) -> SafeText:
        """Why it stands; of a condition also what it says, where there is room (`b` says it). An
        engine that is there again is not called lost."""
        if stop.reason == "engine_lost" and self.view.engine_back:
            return SafeText("the engine had ended")
        if stop.condition is None:
            return SafeText(stop.reason.replace("_", " "))
        if not whole:
            return SafeText(f"condition {stop.condition}")
        return clip(show_text(f"condition {stop.condition}: {stop.source}"), _LONGEST_WHY)

    def _how_on(self) -> str:
        """How far it came, and what leads on from its end."""
        columns = self.view.columns
        limits = columns.limits
        most = None if limits is None else limits.max_steps
        steps = f" · {len(columns)} of {most} steps" if most == len(columns) else ""
        return steps + (" · s or space goes on" if columns.place.reason != "context" else "")

    def _lease(self) -> SafeText:
        """Whose the lease is, where there is anybody to share it with; a free one needs no word:
        whoever steps has it."""
        view, info = self.view, self.view.info
        if info is None or (view.lease != "other" and not view.others):
            return SafeText("")
        match view.lease:
            case "ours":
                return SafeText("lease you")
            case "other":
                return SafeText(f"lease {holder_text(view, info.holder or '', _LONGEST_WHO)}")
            case _:
                return SafeText("")

    def _right(self, shown: Shown, rate: str) -> Line:
        """The lease, the viewers of this session, the speed."""
        palette, viewers = self.palette, self.view.viewers
        people = f"{viewers} viewer{'' if viewers == 1 else 's'}"
        newer = "daemon is newer" if self.view.newer_daemon and shown.people else ""
        parts = [
            Segment(words, style)
            for words, style in (
                (self._lease() if shown.lease else "", palette.accent),
                (newer, palette.muted),
                (people if shown.people else "", palette.muted),
                (rate if shown.rate else "", palette.title),
            )
            if words
        ]
        line: Line = []
        for part in parts:
            line += [Segment(" · ", palette.muted), part] if line else [part]
        return [*line, Segment(" ", palette.base)]
