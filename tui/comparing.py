"""Branches beside each other: what each says from where it leaves, how probable that was, and where
two of them first differ.

Knows columns and numbers; no widgets.
"""

import math
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from engine_daemon.recording.columns import Columns
from engine_daemon.recording.rows import Flag, Rows
from tui.pieces import piece_or_mark
from tui.text import SafeText, percent, show, token

_MOST_STEPS: Final = 400
"""Of a text that is shown: nobody sees more of it."""
_BEFORE: Final = 12
"""Tokens before the first difference that are shown."""
_FORCED: Final = int(Flag.FORCED)
_LEAST: Final = 5e-324


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps [start, …) of one path. `logprob`: sum of the raw ones, natural; None where there is no
    step, or one that is lost."""

    steps: int
    logprob: float | None
    text: SafeText

    @property
    def words(self) -> SafeText:
        """`logprob -45.2, -1.33 each`; of a single step the sum says it all."""
        if self.logprob is None or not self.steps:
            return SafeText("logprob –")
        if self.steps == 1:
            return SafeText(f"logprob {self.logprob:z.2f}")
        return SafeText(f"logprob {self.logprob:z.1f}, {self.logprob / self.steps:z.2f} each")


@dataclass(frozen=True, slots=True)
class Difference:
    """Two branches from step `at` on, the first in which they differ. `before`: the end of what
    they share; `shared`: of each, the steps from there on that both have."""

    at: int
    before: SafeText
    first: Stretch
    second: Stretch
    shared: tuple[Stretch, Stretch]
    tokens: tuple[SafeText, SafeText]

    @property
    def differ(self) -> bool:
        """False: one is the beginning of the other."""
        return self.shared[0].steps > 0

    def texts(self) -> list[SafeText]:
        """What is read beside each other: the steps that both have, as the figures are of them, and
        a sign where one goes on; all of it where one is the beginning of the other."""
        wholes = (self.first, self.second)
        if not self.differ:
            return [one.text for one in wholes]
        return [
            SafeText(f"{one.text} …") if one.steps < whole.steps else one.text
            for one, whole in zip(self.shared, wholes, strict=True)
        ]


def own(columns: Columns, branch: int) -> Stretch:
    """What a branch says from where it leaves its parent."""
    return _stretch(columns.path(branch), columns.start(branch))


def forced(columns: Columns, branch: int) -> int:
    """How many tokens were forced where a branch leaves its parent: one, or those of a text."""
    flags, start = columns.path(branch).flags, columns.start(branch)
    return sum(1 for _ in takewhile(lambda step: flags[step] & _FORCED, range(start, len(flags))))


def difference(columns: Columns, first: int, second: int) -> Difference:
    """Where two branches part, and what each says from there on."""
    one, two = columns.path(first), columns.path(second)
    most = min(len(one), len(two))
    at = next((k for k in range(most) if one.ids[k] != two.ids[k]), most)
    return Difference(
        at=at,
        before=_before(columns, one, at),
        first=_stretch(one, at),
        second=_stretch(two, at),
        shared=(_stretch(one, at, most), _stretch(two, at, most)),
        tokens=(_token(one, at), _token(two, at)),
    )


def _stretch(rows: Rows, start: int, end: int | None = None) -> Stretch:
    end = len(rows) if end is None else end
    probs = rows.prob[start:end]
    known = bool(probs) and not any(math.isnan(p) for p in probs)
    raw = b"".join(
        piece_or_mark(rows, step) for step in range(start, min(end, start + _MOST_STEPS))
    )
    return Stretch(
        steps=max(end - start, 0),
        logprob=sum(math.log(max(p, _LEAST)) for p in probs) if known else None,
        text=show(raw),
    )


def _before(columns: Columns, rows: Rows, at: int) -> SafeText:
    pieces = [piece_or_mark(rows, step) for step in range(max(at - _BEFORE, 0), at)]
    lacking = _BEFORE - len(pieces)
    if lacking > 0:
        pieces = [one.piece for one in columns.prompt_tokens[-lacking:]] + pieces
    return show(b"".join(pieces))


def _token(rows: Rows, at: int) -> SafeText:
    """The token of that step, with its probability; the end of the branch where there is none."""
    if at >= len(rows):
        return SafeText("ends here")
    return SafeText(f"{token(piece_or_mark(rows, at))}  {percent(rows.prob[at])}")
