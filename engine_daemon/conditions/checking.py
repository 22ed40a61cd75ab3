"""The type check: which names there are, what each is compared with, and what goes wrong.

Every fault is a ConditionError at its place in the source. Knows tokens of the grammar as texts
with a place; not how they were found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, cast

import regex

from engine_daemon.conditions.faults import ConditionError
from engine_daemon.conditions.nodes import (
    CommittedName,
    CommittedNumber,
    Condition,
    PendingName,
    PendingNumber,
    ProbOf,
    Relation,
    Slower,
    Special,
    TextEnds,
    TextMatches,
    TokenIs,
    TokenMatches,
)
from engine_daemon.conditions.quoting import BadEscape, unquote, unquote_pattern
from engine_daemon.nearest import near


class Word(Protocol):
    """A token of the grammar: its text, its kind and where it begins."""

    type: str
    start_pos: int | None

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Raw:
    """One comparison as it was written: `name(argument) operator value`."""

    source: str
    name: Word
    argument: Word | None
    operator: Word | None
    value: Word | None

    def fault(self, at: Word | None, message: str, hint: str = "") -> ConditionError:
        """An error at one of the parts; None = right after the last one."""
        if at is not None:
            return ConditionError(message, self.source, at.start_pos or 0, hint)
        parts = (self.name, self.argument, self.operator, self.value)
        last = [part for part in parts if part is not None][-1]
        end = (last.start_pos or 0) + len(str(last)) + (last is self.argument)
        return ConditionError(message, self.source, end, hint)


Number = Literal["plain", "whole", "prob", "percent", "time"]
_NUMBERS: Final[dict[str, Number]] = {
    "entropy": "plain",
    "margin": "prob",
    "step": "whole",
    "position": "whole",
    "cache": "percent",
    "prob": "prob",
    "rank": "whole",
    "id": "whole",
    "ms": "time",
}
_PENDING: Final = ("entropy", "margin", "step", "position", "cache")
_EXAMPLES: Final = {
    "entropy": "entropy>3",
    "margin": "margin<0.05",
    "p": 'p(" Ku")>0.2 or p(eos)>0.5',
    "step": "step=64",
    "position": "position>=4096",
    "cache": "cache>90%",
    "prob": "prob<0.1",
    "rank": "rank>5",
    "token": 'token=" Ku" or token~"^\\s*def"',
    "id": "id=123",
    "special": "special",
    "text": 'text~"regex"',
    "ms": "ms>50 or ms>3x",
    "stop": 'stop("END")',
}


def checked(raw: Raw) -> Condition:
    """The node of a comparison; ConditionError when its parts do not fit each other."""
    name = str(raw.name)
    if name in ("and", "or", "not"):
        raise raw.fault(raw.name, f"{name!r} joins conditions; one is missing here")
    if name not in _EXAMPLES:
        close = near(name, _EXAMPLES)
        hint = f"Did you mean {close}?" if close else f"There are {', '.join(_EXAMPLES)}"
        raise raw.fault(raw.name, f"there is no {name!r}", hint)
    if raw.argument is not None and name not in ("p", "stop"):
        raise raw.fault(raw.argument, f"{name} takes nothing in brackets", _example(name))
    return _MAKERS.get(name, _number)(raw)


def _example(name: str) -> str:
    return f"For example: {_EXAMPLES[name]}"


def _alone(raw: Raw) -> None:
    if raw.operator is not None:
        raise raw.fault(raw.operator, f"{raw.name} stands alone", _example(str(raw.name)))


def _compared(raw: Raw, operators: tuple[str, ...]) -> tuple[str, Word]:
    """Operator (`==` is `=`) and value."""
    name = str(raw.name)
    if raw.operator is None or raw.value is None:
        raise raw.fault(None, f"{name} is compared with something", _example(name))
    operator = {"==": "="}.get(str(raw.operator), str(raw.operator))
    if operator not in operators:
        allowed = " ".join(operators)
        raise raw.fault(raw.operator, f"{name} takes {allowed}, not {operator}", _example(name))
    return operator, raw.value


_RELATIONS: Final = (">", ">=", "<", "<=", "=", "!=")


def _number(raw: Raw) -> Condition:
    name = str(raw.name)
    operator, word = _compared(raw, _RELATIONS)
    relation = cast("Relation", operator)
    value, unit = _value(raw, word, _NUMBERS[name])
    if unit == "x":
        return Slower(relation, value)
    if name in _PENDING:
        return PendingNumber(cast("PendingName", name), relation, value)
    return CommittedNumber(cast("CommittedName", name), relation, value)


def _value(raw: Raw, word: Word, kind: Number) -> tuple[float, str]:
    """A number of this kind and its unit."""
    name, text = str(raw.name), str(word)
    if word.type != "NUMBER":
        raise raw.fault(word, f"{name} is compared with a number", _example(name))
    unit = text[-1] if text[-1] in "%x" else ""
    value = float(text.rstrip("%x"))
    if not math.isfinite(value):
        raise raw.fault(word, "that is too large for a number", _example(name))
    units = {"percent": "%", "prob": ("", "%"), "time": ("", "x")}.get(kind, ("",))
    if unit not in units or (kind == "percent" and not unit):
        message = (
            f"{name} is compared with a percentage"
            if kind == "percent"
            else (f"{name} takes no {unit}")
        )
        raise raw.fault(word, message, _example(name))
    if kind == "prob" and unit:
        value /= 100
    if kind == "prob" and not 0 <= value <= 1:
        raise raw.fault(word, f"{name} lies between 0 and 1", _example(name))
    if kind == "whole" and value != int(value):
        raise raw.fault(word, f"{name} is a whole number", _example(name))
    if value < 0:
        raise raw.fault(word, f"{name} is never negative", _example(name))
    return value, unit


def _prob_of(raw: Raw) -> Condition:
    if raw.argument is None:
        at = raw.operator
        raise raw.fault(at, "p needs a token in brackets", _example("p"))
    text: bytes | None = None
    if raw.argument.type == "STRING":
        text = _literal(raw, raw.argument)
    elif str(raw.argument) != "eos":
        raise raw.fault(raw.argument, "a token is a text in quotes, or eos", _example("p"))
    operator, word = _compared(raw, _RELATIONS)
    value, _ = _value(raw, word, "prob")
    return ProbOf(text, cast("Relation", operator), value)


def _token(raw: Raw) -> Condition:
    operator, word = _compared(raw, ("=", "!=", "~"))
    if word.type != "STRING":
        raise raw.fault(word, "a token is compared with a text in quotes", _example("token"))
    if operator == "~":
        return TokenMatches(_pattern(raw, word))
    return TokenIs(_literal(raw, word), operator == "=")


def _text(raw: Raw) -> Condition:
    _, word = _compared(raw, ("~",))
    if word.type != "STRING":
        raise raw.fault(word, "text is matched with a regular expression in quotes")
    return TextMatches(_pattern(raw, word))


def _special(raw: Raw) -> Condition:
    _alone(raw)
    return Special()


def _stop(raw: Raw) -> Condition:
    if raw.argument is None or raw.argument.type != "STRING":
        raise raw.fault(raw.argument or raw.operator, "stop needs a text", _example("stop"))
    text = _literal(raw, raw.argument)
    _alone(raw)
    return TextEnds(text)


_MAKERS: Final[dict[str, Callable[[Raw], Condition]]] = {
    "p": _prob_of,
    "token": _token,
    "text": _text,
    "special": _special,
    "stop": _stop,
}


def _literal(raw: Raw, word: Word) -> bytes:
    body = str(word)[1:-1]
    try:
        text = unquote(body)
    except BadEscape as bad:
        at = (word.start_pos or 0) + 1 + bad.at
        raise ConditionError(
            f"{bad.escape} means nothing here", raw.source, at, r"There are \n \t \r \\ \" \xHH"
        ) from None
    if not text:
        raise raw.fault(word, "this text is empty")
    return text


def _pattern(raw: Raw, word: Word) -> str:
    written = str(word)
    body, mark = written[1:-1], written[0]
    pattern = unquote_pattern(body, mark)
    try:
        regex.compile(pattern)
    except regex.error as error:
        # An escaped quote before the fault is one character shorter in the pattern.
        inside = _written_at(body, mark, error.pos or 0)
        at = (word.start_pos or 0) + 1 + inside
        raise ConditionError(f"regular expression: {error.msg}", raw.source, at) from None
    except (RecursionError, OverflowError, MemoryError):
        raise raw.fault(word, "this regular expression is too large") from None
    return pattern


def _written_at(body: str, mark: str, place: int) -> int:
    """Where a place of the pattern lies in the text it was written as."""
    at = 0
    for _ in range(place):
        at += 2 if body[at : at + 2] == f"\\{mark}" else 1
    return at
