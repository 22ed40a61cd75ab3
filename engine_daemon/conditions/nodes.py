"""What a condition is once it is parsed and type-checked: a small typed tree.

Knows no text, no tokenizer and no engine. Pending atoms can be told from a distribution alone;
committed ones need the token that was picked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Relation = Literal[">", ">=", "<", "<=", "=", "!="]
PendingName = Literal["entropy", "margin", "step", "position", "cache"]
CommittedName = Literal["prob", "rank", "id", "ms"]


@dataclass(frozen=True, slots=True)
class PendingNumber:
    """`entropy>3`, `margin<0.05`, `step=64`, `position>=4096`, `cache>90%` (in percent)."""

    name: PendingName
    relation: Relation
    value: float


@dataclass(frozen=True, slots=True)
class ProbOf:
    """`p(" Ku")>0.2`; `text` None is `p(eos)`."""

    text: bytes | None
    relation: Relation
    value: float


@dataclass(frozen=True, slots=True)
class CommittedNumber:
    """`prob<0.1`, `rank>5`, `id=123`, `ms>50`."""

    name: CommittedName
    relation: Relation
    value: float


@dataclass(frozen=True, slots=True)
class Slower:
    """`ms>3x`: the step's time against the running median of those before it."""

    relation: Relation
    times: float


@dataclass(frozen=True, slots=True)
class TokenIs:
    """`token=" Ku"`, `token!=" Ku"`."""

    text: bytes
    equal: bool


@dataclass(frozen=True, slots=True)
class TokenMatches:
    """`token~"^\\s*def"`."""

    pattern: str


@dataclass(frozen=True, slots=True)
class TextMatches:
    """`text~"regex"`: a match in the last 4 KiB ends inside the new token."""

    pattern: str


@dataclass(frozen=True, slots=True)
class TextEnds:
    """`stop("END")`: the generated text now contains this, ending inside the new token."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Special:
    """`special`: the token is a special one."""


@dataclass(frozen=True, slots=True)
class Not:
    """`not a`."""

    part: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    """`a and b and c`."""

    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """`a or b or c`."""

    parts: tuple["Condition", ...]


PendingAtom = PendingNumber | ProbOf
CommittedAtom = CommittedNumber | Slower | TokenIs | TokenMatches | TextMatches | TextEnds | Special
Atom = PendingAtom | CommittedAtom
Condition = Atom | Not | And | Or


def atoms(condition: Condition) -> Iterator[Atom]:
    """Every atom, from left to right."""
    match condition:
        case Not(part=part):
            yield from atoms(part)
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from atoms(part)
        case _:
            yield condition


def is_committed(condition: Condition) -> bool:
    """It needs the picked token, so it is evaluated after the append."""
    return any(not isinstance(atom, PendingAtom) for atom in atoms(condition))


def literals(condition: Condition) -> list[bytes]:
    """Texts that must be tokens, each once, in order."""
    found: dict[bytes, None] = {}
    for atom in atoms(condition):
        match atom:
            case ProbOf(text=text) if text is not None:
                found[text] = None
            case TokenIs(text=text):
                found[text] = None
            case _:
                pass
    return list(found)
