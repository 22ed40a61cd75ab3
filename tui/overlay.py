"""What a read on a kept row found, as a column beside the candidates of that step.

Another sampler's probabilities, or how often a token came in many draws. Knows figures; draws
nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine_daemon.protocol.values import Sampler, StepFigures, TokenFigure
from tui.text import DASH, SafeText, clip, percent, token, width
from tui.widgets.sampler_words import filter_words

_TOKEN_CELLS: Final = 12
_MOST_FIRST: Final = 4
"""Tokens that the line below names."""
_WHOLE: Final = 10.0
_LEAST_SAID: Final = 0.1


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
    draws: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    """Of a re-roll: how many draws, and how often each token of the answer came."""

    def rest(self, listed: Iterable[int]) -> str:
        """How many draws fell on tokens that are not listed; at most so many where the answer
        does not name all that came."""
        many = self.draws - sum(self.counts.get(one, 0) for one in listed)
        return f"{'' if sum(self.counts.values()) == self.draws else '≤ '}{many}"

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
    counts = {figure.id: figure.count or 0 for figure in found}
    cells = {token_id: SafeText(f"{count}") for token_id, count in counts.items()}
    first = [
        f"{clip(token(figure.piece), _TOKEN_CELLS)} {figure.count} ({_expected(draws, log)})"
        for figure in found[:_MOST_FIRST]
        if (log := figure.final_logprob) > -math.inf
    ]
    firsts = [", ".join(first[:many]) for many in range(len(first), 0, -1)] or [DASH]
    shorter = (words.replace("(", "(expected ", 1) for words in firsts)
    notes = _with_way_back(f"{draws} draws, came (expected): {firsts[0]}", *shorter)
    heading = SafeText(f"of {draws}")
    return Overlay(branch, step, sampler, heading, cells, notes, draws, counts)


def _expected(draws: int, logprob: float) -> str:
    """How often a token is to be expected; never 0, which would say that it cannot come."""
    expected = draws * math.exp(logprob)
    if expected >= _WHOLE:
        return f"{expected:.0f}"
    return f"{expected:.1f}" if expected >= _LEAST_SAID else f"<{_LEAST_SAID}"


def _with_way_back(*notes: str) -> tuple[SafeText, ...]:
    return (*(SafeText(f"{note} · esc back") for note in notes), SafeText(notes[-1]))
