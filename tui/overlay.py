"""What a read on a kept row found, as a column beside the candidates of that step.

Another sampler's probabilities, or how often a token came in many draws. Knows figures; draws
nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine_daemon.protocol.values import Sampler, StepFigures, TokenFigure
from tui.text import SafeText, clip, percent, token, width
from tui.widgets.sampler_words import filter_words

_TOKEN_CELLS: Final = 12


@dataclass(frozen=True, slots=True)
class Overlay:
    """A column by id, for one step of one branch; of `notes`, the same from the longest to the
    shortest, the first one that fits is said below.

    `sampler`: the session's when it was read; under another one it is no answer any more.
    """

    branch: int
    step: int
    sampler: Sampler
    heading: SafeText
    cells: dict[int, SafeText]
    notes: tuple[SafeText, ...]

    def note(self, cells: int) -> SafeText:
        """The longest note that fits whole; of the shortest, as much as fits."""
        fitting = (note for note in self.notes if width(note) <= cells)
        return next(fitting, clip(self.notes[-1], cells))


def what_if(branch: int, step: int, sampler: Sampler, figures: StepFigures) -> Overlay:
    """The candidates' final probabilities under the other sampler, and its pick."""
    cells = {}
    for row in figures.candidates.rows():
        dropped = filter_words(row.dropped_by)
        if row.final_logprob == -math.inf and dropped is not None:
            cells[row.id] = SafeText(f"0 {dropped}")
        else:
            cells[row.id] = percent(math.exp(min(row.final_logprob, 0.0)))
    picked = figures.picked
    drawn = "" if figures.draw is None else f" (u {figures.draw:.4f})"
    said = f"would pick {token(picked.piece)}"
    notes = _with_way_back(f"{said}, id {picked.id}{drawn}", f"{said}, id {picked.id}", said)
    return Overlay(branch, step, sampler, SafeText("what if"), cells, notes)


def reroll(
    branch: int, step: int, sampler: Sampler, draws: int, found: Sequence[TokenFigure]
) -> Overlay:
    """How often each token came; the expected counts of the most frequent ones below."""
    cells = {figure.id: SafeText(f"{figure.count or 0}") for figure in found}
    first = [
        (clip(token(figure.piece), _TOKEN_CELLS), figure.count, draws * math.exp(log))
        for figure in found[:3]
        if (log := figure.final_logprob) > -math.inf
    ]
    both = ", ".join(f"{name} {count} ({expected:.0f})" for name, count, expected in first)
    counts = [f"{name} {expected:.0f}" for name, _, expected in first]
    shorter = (f"expected {', '.join(counts[:many])}" for many in range(len(counts), 0, -1))
    notes = _with_way_back(f"{draws} draws, came (expected): {both}", *shorter)
    return Overlay(branch, step, sampler, SafeText(f"of {draws}"), cells, notes)


def _with_way_back(*notes: str) -> tuple[SafeText, ...]:
    return (*(SafeText(f"{note} · esc back") for note in notes), SafeText(notes[-1]))
