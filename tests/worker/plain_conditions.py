"""Conditions by plain arithmetic over recorded steps, and strategies that make them.

Shares nothing with `engine_daemon.conditions`: trees are tuples, made and written here.
"""

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from engine_daemon.protocol.events import Event, Predicted, Stepped
from engine_daemon.protocol.synthetic import EOS_ID
from engine_daemon.tokens.builtin import PIECES

LIMIT: Final = 60
"""Positions that the sessions may grow to."""
STEPS: Final = 30


def ids_of(text: bytes) -> list[int]:
    """Every id of the built-in vocabulary with these bytes."""
    return [i for i, piece in enumerate(PIECES) if piece == text]


@dataclass
class Record:
    """One recorded step; `stepped` None while it is pending."""

    predicted: Predicted
    stepped: Stepped | None
    earlier: list[Stepped]


Tree = tuple[Any, ...]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _prob(record: Record, ids: Sequence[int]) -> float:
    rows = {row.id: row.logit for row in record.predicted.candidates.rows()}
    return sum(math.exp(rows[i] - record.predicted.logsumexp) for i in ids)


def _number_of(name: str, record: Record) -> float | None:
    predicted, stepped = record.predicted, record.stepped
    cache = predicted.cache
    match name:
        case "entropy":
            return predicted.entropy_bits
        case "margin":
            return predicted.margin
        case "step":
            return predicted.step
        case "position":
            return predicted.position
        case "cache":
            assert cache.tokens is not None
            return cache.tokens / LIMIT * 100
    assert stepped is not None
    match name:
        case "prob":
            return math.exp(stepped.logit - predicted.logsumexp)
        case "rank":
            return stepped.rank
        case "id":
            return stepped.id
        case "ms":
            return stepped.total_ms
    raise AssertionError(name)


def true(tree: Tree, record: Record) -> bool:
    """The tree holds at this step."""
    match tree:
        case ("not", part):
            return not true(part, record)
        case ("and", *parts):
            return all(true(part, record) for part in parts)
        case ("or", *parts):
            return any(true(part, record) for part in parts)
        case ("number", name, operator, value):
            return OPERATORS[operator](_number_of(name, record), value)
        case ("p", text, operator, value):
            ids = [EOS_ID] if text is None else ids_of(text.encode())
            return OPERATORS[operator](_prob(record, ids), value)
    stepped = record.stepped
    assert stepped is not None
    text = b"".join(one.piece for one in [*record.earlier, stepped] if not one.special).decode()
    new = "" if stepped.special else stepped.piece.decode()
    match tree:
        case ("slower", operator, times):
            if len(record.earlier) < 7:
                return False
            median = statistics.median(one.total_ms for one in record.earlier)
            return OPERATORS[operator](stepped.total_ms, times * median)
        case ("token", operator, piece):
            same: bool = stepped.piece == piece.encode()
            return same is (operator == "=")
        case ("token~", pattern):
            return re.search(pattern, stepped.piece.decode()) is not None
        case ("text~", pattern):
            ends = [m.end() for m in re.finditer(pattern, text)]
            return any(end > len(text) - len(new) for end in ends)
        case ("stop", piece):
            places = [m.end() for m in re.finditer(f"(?=({re.escape(piece)}))", text)]
            return any(place + len(piece) > len(text) - len(new) for place in places)
        case ("special",):
            return stepped.special
    raise AssertionError(tree)


def committed(tree: Tree) -> bool:
    match tree:
        case ("not", part):
            return committed(part)
        case ("and" | "or", *parts):
            return any(map(committed, parts))
        case ("number", name, _, _):
            return name in ("prob", "rank", "id", "ms")
    return str(tree[0]) != "p"


def written(tree: Tree) -> str:
    match tree:
        case ("not", part):
            return f"not ({written(part)})"
        case ("and" | "or" as word, *parts):
            return f" {word} ".join(f"({written(part)})" for part in parts)
        case ("number", name, operator, value):
            return f"{name} {operator} {value}{'%' if name == 'cache' else ''}"
        case ("p", text, operator, value):
            return f"p({'eos' if text is None else f'{chr(34)}{text}{chr(34)}'}){operator}{value}"
        case ("slower", operator, times):
            return f"ms{operator}{times}x"
        case ("token", operator, piece):
            return f'token{operator}"{piece}"'
        case ("token~" | "text~" as name, pattern):
            return f"{name}'{pattern}'"
        case ("stop", piece):
            return f"stop('{piece}')"
    return str(tree[0])


RELATION = st.sampled_from(sorted(OPERATORS))
NEARLY = st.sampled_from([">", "<", ">=", "<="])
TEXTS = st.sampled_from([" the", " of", " could", " life", " a", "a", ",", "."])
PATTERNS = st.sampled_from([r"\w{6}", r"[aeiou]\w [tw]", r"d$", r"^ c", r"(?<=e) s", r"o.*o"])


def number(name: str, values: st.SearchStrategy[Any], how: Any = NEARLY) -> st.SearchStrategy[Tree]:
    return st.tuples(st.just("number"), st.just(name), how, values)


ATOMS: st.SearchStrategy[Tree] = st.one_of(
    number("entropy", st.floats(0.5, 7).map(lambda v: round(v, 3))),
    number("margin", st.floats(0.001, 0.6).map(lambda v: round(v, 4))),
    number("step", st.integers(0, STEPS + 3), RELATION),
    number("position", st.integers(0, STEPS + 8), RELATION),
    number("cache", st.floats(0, 100).map(lambda v: round(v, 2))),
    number("prob", st.floats(0.0001, 0.6).map(lambda v: round(v, 4))),
    number("rank", st.integers(1, 60), RELATION),
    number("id", st.integers(250, 511), RELATION),
    number("ms", st.floats(0.01, 3).map(lambda v: round(v, 3))),
    st.tuples(
        st.just("p"),
        st.one_of(st.none(), TEXTS),
        NEARLY,
        st.floats(0.0001, 0.3).map(lambda v: round(v, 5)),
    ),
    st.tuples(st.just("slower"), NEARLY, st.floats(0.5, 4).map(lambda v: round(v, 2))),
    st.tuples(st.just("token"), st.sampled_from(["=", "!="]), TEXTS),
    st.tuples(st.sampled_from(["token~", "text~"]), PATTERNS),
    st.tuples(st.just("stop"), st.sampled_from(["e", "th", "e t", " a", "ould", "r w"])),
    st.just(("special",)),
)
TREES: st.SearchStrategy[Tree] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner, inner),
    ),
    max_leaves=5,
)


def records(events: list[Event]) -> list[Record]:
    predicted = {event.step: event for event in events if isinstance(event, Predicted)}
    steps = [event for event in events if isinstance(event, Stepped)]
    done = [Record(predicted[one.step], one, steps[: one.step]) for one in steps]
    pending = [p for step, p in predicted.items() if step >= len(steps)]
    return [*done, *(Record(one, None, steps) for one in pending)]
