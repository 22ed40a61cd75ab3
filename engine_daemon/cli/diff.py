"""`diff A B`: where two recordings differ, for people or as JSON lines.

Knows words; what is compared is `recording.comparing`'s. Exit code 1 at a difference.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say, tell
from engine_daemon.cli.recordings import open_recording, say_missing
from engine_daemon.cli.table import table
from engine_daemon.errors import Exit
from engine_daemon.export.objects import number
from engine_daemon.export.text import readable
from engine_daemon.recording.comparing import Apart, Comparison, Pick, Side
from engine_daemon.sampler_words import sampler_words

_MOST_ROWS: Final = 20
"""Steps listed for people; JSON has all."""


def main(arguments: list[str], given: Given) -> int:
    """`diff A B`."""
    with open_recording(arguments[0], given) as a, open_recording(arguments[1], given) as b:
        for recording in (a, b):
            say_missing(recording, what_there_is=True)
        comparison = Comparison(Side.of(a), Side.of(b), given.tol)
        if not comparison.same_tokens:
            say("note: the two were made with different tokenizers; ids may mean something else")
        told = _Json(comparison) if given.json else _Words(comparison)
        steps = []
        for apart in comparison.steps():
            told.step(apart)
            steps.append(apart)
        over = [apart for apart in steps if not apart.delta <= comparison.tolerance]
        parted = comparison.prompt_at is not None or comparison.parts is not None
        told.end(steps, over, differs := bool(parted or over))
    return Exit.DIFFERENT if differs else Exit.DONE


class _Json:
    """`sides`, a line a step, `parts` where they do, and `diff` with the verdict."""

    def __init__(self, comparison: Comparison) -> None:
        self._of = comparison
        sides = {name: _side(side) for name, side in (("a", comparison.a), ("b", comparison.b))}
        _line({"event": "sides", **sides, "tolerance": comparison.tolerance})

    def step(self, apart: Apart) -> None:
        """One step's distributions."""
        _line(
            {
                "event": "step",
                "step": apart.step,
                "shared": apart.shared,
                "max_delta": apart.delta,
                "at": {"id": apart.id, "text": readable(apart.piece)},
                "prob": [apart.prob_a, apart.prob_b],
                "kl_bits": number(apart.kl_bits),
                "over": not apart.delta <= self._of.tolerance,
            }
        )

    def end(self, steps: Sequence[Apart], over: Sequence[Apart], differs: bool) -> None:
        """Where they part, and whether they differ at all."""
        of = self._of
        if of.prompt_at is not None:
            _line({"event": "parts", "prompt": of.prompt_at})
        if of.parts is not None:
            picks = {"a": _pick(of.a.pick(of.parts)), "b": _pick(of.b.pick(of.parts))}
            _line({"event": "parts", "step": of.parts, **picks})
        _line(
            {
                "event": "diff",
                "differs": differs,
                "common": of.common,
                "compared": len(steps),
                "over": len(over),
                "max_delta": max((apart.delta for apart in steps), default=None),
            }
        )


def _line(line: dict[str, object]) -> None:
    tell(msgspec.json.encode(line).decode())


def _side(side: Side) -> dict[str, object]:
    columns = side.columns
    engine, opened = columns.engine, columns.opened
    return {
        "file": str(side.recording.path),
        "session": opened.session if opened else None,
        "model": engine.model.name if engine else None,
        "dtype": engine.model.dtype if engine else None,
        "sampler": msgspec.to_builtins(columns.sampler),
        "prompt_tokens": len(columns.prompt_ids),
        "steps": len(columns),
        "branch": columns.branch,
    }


def _pick(pick: Pick) -> dict[str, object] | None:
    """None: that side ends here."""
    if pick.id is None:
        return None
    return {
        "id": pick.id,
        "text": readable(pick.piece),
        "prob": pick.prob,
        "rank": pick.rank,
        "margin": pick.margin,
    }


class _Words:
    """For people: both sides, the steps beyond the tolerance, where they part, the verdict."""

    def __init__(self, comparison: Comparison) -> None:
        self._of = comparison
        rows = [_side_row(name, side) for name, side in (("A", comparison.a), ("B", comparison.b))]
        tell(table(("", "SESSION", "MODEL", "DTYPE", "SAMPLER", "PROMPT", "STEPS", "FILE"), rows))

    def step(self, apart: Apart) -> None:
        """Nothing yet: those beyond the tolerance are listed together."""

    def end(self, steps: Sequence[Apart], over: Sequence[Apart], differs: bool) -> None:
        """The table, and what it comes to."""
        if over:
            tell(f"\n{len(over)} of {len(steps)} steps are apart by more than {self._tolerance}")
            rows = [_step_row(apart) for apart in over[:_MOST_ROWS]]
            tell(table(("STEP", "MAX |Δp|", "A", "B", "KL BITS", "CANDIDATE"), rows))
            if len(over) > _MOST_ROWS:
                tell(f"… and {len(over) - _MOST_ROWS} more; --json lists all")
        tell("")
        for line in self._parting():
            tell(line)
        tell(self._verdict(steps, differs))

    @property
    def _tolerance(self) -> str:
        return f"{self._of.tolerance:g}"

    def _parting(self) -> list[str]:
        of = self._of
        if of.prompt_at is not None:
            return [f"the prompts differ from token {of.prompt_at} on; nothing else is compared"]
        if of.parts is None:
            return []
        step = of.parts
        a, b = of.a.pick(step), of.b.pick(step)
        if a.id is None or b.id is None:
            short, longer = ("A", of.b) if a.id is None else ("B", of.a)
            left = len(longer.columns) - step
            return [f"{short} ends after {step} steps, the other goes on for {left} more"]
        return [
            f"they part at step {step}: A picked {_named(a)}",
            f"{' ' * len(f'they part at step {step}: ')}B picked {_named(b)}",
        ]

    def _verdict(self, steps: Sequence[Apart], differs: bool) -> str:
        common, most = self._of.common, max((apart.delta for apart in steps), default=None)
        apart = "" if most is None else f", probabilities at most {most:.2g} apart"
        apart = ", probabilities equal" if most == 0 else apart
        steps_there = f"{common} step" if common == 1 else f"{common} steps"
        if differs:
            return f"different; {steps_there} in common{apart}"
        return f"the same: {steps_there}{apart} (tolerance {self._tolerance})"


def _side_row(name: str, side: Side) -> tuple[str, ...]:
    told = _side(side) | {"sampler": sampler_words(side.columns.sampler)}
    names = ("session", "model", "dtype", "sampler", "prompt_tokens", "steps", "file")
    return (name, *("-" if told[key] is None else str(told[key]) for key in names))


def _step_row(apart: Apart) -> tuple[str, ...]:
    probs = (f"{apart.prob_a:.4f}", f"{apart.prob_b:.4f}", f"{apart.kl_bits:.4f}")
    return (str(apart.step), f"{apart.delta:.4f}", *probs, repr(readable(apart.piece)))


def _named(pick: Pick) -> str:
    prob = "" if pick.prob is None else f", {pick.prob * 100:.1f} %"
    margin = "" if pick.margin is None else f", margin {pick.margin * 100:.1f} %"
    return f"{readable(pick.piece)!r} (id {pick.id}, rank {pick.rank or '–'}{prob}{margin})"
