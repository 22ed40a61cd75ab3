"""True or false at a step, with the values that made it so.

Knows nodes and numbers; where the numbers come from is the caller's matter (`Distribution`,
`Picked`). The only thing here that can take long is a regular expression, and that has a limit.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

import regex

from engine_daemon.conditions.nodes import (
    And,
    Atom,
    CommittedNumber,
    Condition,
    Not,
    Or,
    PendingNumber,
    ProbOf,
    Relation,
    Slower,
    Special,
    TextEnds,
    TextMatches,
    TokenIs,
    TokenMatches,
    atoms,
)
from engine_daemon.conditions.quoting import quote

REGEX_S: Final = 0.02
"""A regular expression may search so long; then its condition is given up."""
WINDOW_BYTES: Final = 4096
"""How far back a match in the text may begin."""
MEDIAN_FROM: Final = 7
"""Steps before the first one whose time is compared with their median: the 8th."""
_LONGEST_VALUE: Final = 200

Value = bool | int | float | str
Values = dict[str, Value]

_RELATIONS: Final[dict[Relation, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}


class TooSlow(Exception):
    """A regular expression reached its time limit."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern


class Distribution(Protocol):
    """One step's distribution: what pending atoms ask for. `cache` in percent of the limit."""

    @property
    def entropy(self) -> float: ...
    @property
    def margin(self) -> float: ...
    @property
    def step(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def cache(self) -> float | None: ...
    @property
    def eos_ids(self) -> Sequence[int]: ...

    def prob_of(self, ids: Sequence[int]) -> float:
        """Raw probability of these tokens together."""
        ...


class Picked(Protocol):
    """The token of that step. `median_ms`: of the steps before it, None before there are 7."""

    @property
    def id(self) -> int: ...
    @property
    def piece(self) -> bytes: ...
    @property
    def special(self) -> bool: ...
    @property
    def prob(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def ms(self) -> float: ...
    @property
    def median_ms(self) -> float | None: ...

    def tail(self, least: int) -> bytes:
        """The end of the generated text, the new token's part included: `least` bytes or more,
        or all there is."""
        ...


@dataclass(frozen=True, slots=True)
class _Step:
    distribution: Distribution
    picked: Picked | None


class Evaluator:
    """One condition, ready to be asked. `literals`: the ids of every text in it.

    KeyError when one of its texts has no entry there.
    """

    def __init__(self, condition: Condition, literals: Mapping[bytes, Sequence[int]]) -> None:
        self._condition = condition
        self._ids: dict[bytes, Sequence[int]] = {}
        self._patterns: dict[str, regex.Pattern[str]] = {}
        for atom in atoms(condition):
            match atom:
                case ProbOf(text=bytes(text)) | TokenIs(text=text):
                    self._ids[text] = literals[text]
                case TokenMatches(pattern=pattern) | TextMatches(pattern=pattern):
                    self._patterns[pattern] = regex.compile(pattern)
                case _:
                    pass

    def holds(self, distribution: Distribution, picked: Picked | None = None) -> Values | None:
        """The values of the atoms looked at when it is true, else None. TooSlow at the limit."""
        values: Values = {}
        step = _Step(distribution, picked)
        return values if self._true(self._condition, step, values) else None

    def _true(self, condition: Condition, step: _Step, values: Values) -> bool:
        match condition:
            case Not(part=part):
                return not self._true(part, step, values)
            case And(parts=parts):
                return all(self._true(part, step, values) for part in parts)
            case Or(parts=parts):
                return any(self._true(part, step, values) for part in parts)
            case _:
                return self._atom(condition, step, values)

    def _atom(self, atom: Atom, step: _Step, values: Values) -> bool:
        match atom:
            case PendingNumber(name=name):
                found = getattr(step.distribution, name)
                return _compared(name, found, atom.relation, atom.value, values)
            case ProbOf(text=text):
                ids = step.distribution.eos_ids if text is None else self._ids[text]
                label = f"p({'eos' if text is None else quote(text)})"
                prob = step.distribution.prob_of(ids)
                return _compared(label, prob, atom.relation, atom.value, values)
            case _:
                return step.picked is not None and self._picked(atom, step.picked, values)

    def _picked(
        self,
        atom: CommittedNumber | Slower | TokenIs | TokenMatches | TextMatches | TextEnds | Special,
        picked: Picked,
        values: Values,
    ) -> bool:
        match atom:
            case CommittedNumber(name=name):
                found = getattr(picked, name)
                return _compared(name, found, atom.relation, atom.value, values)
            case Slower():
                return _slower(atom, picked, values)
            case TokenIs(text=text, equal=equal):
                values["token"] = _shown(picked.piece)
                return (picked.id in self._ids[text]) is equal
            case TokenMatches(pattern=pattern):
                values["token"] = _shown(picked.piece)
                return self._search(pattern, _decoded(picked.piece), -1) is not None
            case TextMatches(pattern=pattern):
                match = self._text_match(pattern, picked)
                values["text"] = "" if match is None else match[:_LONGEST_VALUE]
                return match is not None
            case TextEnds(text=text):
                values[f"stop({quote(text)})"] = ends_inside(text, picked)
                return ends_inside(text, picked)
            case Special():
                values["special"] = picked.special
                return picked.special
            case _:
                assert_never(atom)

    def _text_match(self, pattern: str, picked: Picked) -> str | None:
        """What matches and ends inside the new token, in the last 4 KiB of the text."""
        new = b"" if picked.special else picked.piece
        if not new:
            return None
        text = whole_characters(picked.tail(WINDOW_BYTES)[-WINDOW_BYTES:])
        shown = _decoded(text)
        return self._search(pattern, shown, _characters_before(shown, len(text) - len(new)))

    def _search(self, pattern: str, text: str, past: int) -> str | None:
        """The first match of a search from left to right that ends past this character."""
        try:
            for match in self._patterns[pattern].finditer(text, timeout=REGEX_S):
                if match.end() > past:
                    return _shown(match.group().encode("utf-8", "surrogateescape"))
        except TimeoutError:
            raise TooSlow(pattern) from None
        return None


def _compared(
    label: str, found: float | None, relation: Relation, value: float, values: Values
) -> bool:
    """A number that is not there is neither greater nor smaller nor equal."""
    if found is None:
        return False
    values[label] = found
    return _RELATIONS[relation](found, value)


def _slower(atom: Slower, picked: Picked, values: Values) -> bool:
    median = picked.median_ms
    if median is None:
        return False
    values["ms"], values["median_ms"] = picked.ms, median
    return _RELATIONS[atom.relation](picked.ms, atom.times * median)


def ends_inside(text: bytes, picked: Picked) -> bool:
    """The generated text contains `text`, and its last byte came with the new token."""
    new = b"" if picked.special else picked.piece
    if not new:
        return False
    reach = len(text) - 1 + len(new)
    return text in picked.tail(reach)[-reach:]


def whole_characters(tail: bytes) -> bytes:
    """Without the rest of a UTF-8 character that was cut at the front."""
    cut = 0
    while cut < min(3, len(tail)) and 0x80 <= tail[cut] < 0xC0:
        cut += 1
    return tail[cut:]


def _characters_before(text: str, start: int) -> int:
    """How many characters of `text` end at or before its byte `start`."""
    count, end = len(text), len(text.encode("utf-8", "surrogateescape"))
    while end > start:
        count -= 1
        end -= len(text[count].encode("utf-8", "surrogateescape"))
    return count


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
