"""One table for every benchmark: what was measured, the figure, what it is compared with."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `goal` in words, `met` None where there is none."""

    measure: str
    figure: str
    goal: str = ""
    met: bool | None = None


def render(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    cells = [("measure", "figure", "goal", "met")]
    marks = {None: "", True: "yes", False: "NO"}
    cells += [(row.measure, row.figure, row.goal, marks[row.met]) for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(4)]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def percentile(values: Sequence[float], q: float) -> float:
    """The value that the fraction `q` does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)
