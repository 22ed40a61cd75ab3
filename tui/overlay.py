"""What a read on a kept row found, as a column beside the candidates of that step.

Another sampler's probabilities, or how often a token came in many draws. Knows figures; draws
nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine_daemon.protocol.values import Sampler, StepFigures, TokenFigure
from tui.text import SafeText, percent, token
from tui.widgets.sampler_words import filter_words


@dataclass(frozen=True, slots=True)
class Overlay:
    """A column by id, for one step of one branch; `note` is said below.

    `sampler`: the session's when it was read; under another one it is no answer any more.
    """

    branch: int
    step: int
    sampler: Sampler
    heading: SafeText
    cells: dict[int, SafeText]
    note: SafeText


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
    note = SafeText(f"would pick {token(picked.piece)}, id {picked.id}{drawn} · esc: back")
    return Overlay(branch, step, sampler, SafeText("what if"), cells, note)


def reroll(
    branch: int, step: int, sampler: Sampler, draws: int, found: Sequence[TokenFigure]
) -> Overlay:
    """How often each token came; the expected count of the most frequent ones below."""
    cells = {figure.id: SafeText(f"{figure.count or 0}") for figure in found}
    first = [
        f"{token(figure.piece)} {figure.count} ({draws * math.exp(figure.final_logprob):.0f})"
        for figure in found[:3]
        if figure.final_logprob > -math.inf
    ]
    note = SafeText(f"{draws} draws, came (expected): {', '.join(first)} · esc: back")
    return Overlay(branch, step, sampler, SafeText(f"of {draws}"), cells, note)
