"""Text → the parts of a condition, each with its place, and then the typed tree.

The grammar is loose on purpose (any name, any operator, any value); what fits together is decided
in `typing`, which can then say what is wrong instead of "unexpected token". Never evaluates text.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError

from engine_daemon.conditions.checking import Raw, checked
from engine_daemon.conditions.faults import ConditionError
from engine_daemon.conditions.nodes import And, Condition, Not, Or

LONGEST: Final = 2000
"""Characters of one condition."""

_GRAMMAR: Final = r"""
?start: either
?either: both ("or" both)*
?both: inverted ("and" inverted)*
?inverted: "not" inverted -> negated
         | "(" either ")"
         | comparison
comparison: NAME [argument] [OPERATOR value]
argument: "(" (NAME | STRING) ")"
value: NUMBER | STRING | NAME

OPERATOR: ">=" | "<=" | "!=" | "==" | ">" | "<" | "=" | "~"
NAME: /[A-Za-z_]\w*/
NUMBER: /-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[%x]?(?![\w.%])/
STRING: /"(\\.|[^"\\])*"/s | /'(\\.|[^'\\])*'/s

%import common.WS
%ignore WS
"""

_EXPECTED: Final = {
    "NAME": "a name such as entropy or token",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "OPERATOR": "one of > >= < <= = != ~",
    "LPAR": "(",
    "RPAR": ")",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "$END": "the end",
}


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=True)


def parse(source: str) -> Condition:
    """The typed tree of a condition; ConditionError with the place of the fault."""
    if len(source) > LONGEST:
        raise ConditionError(f"a condition has at most {LONGEST} characters", f"{source[:60]} …", 0)
    if not source.strip():
        raise ConditionError("the condition is empty", source, 0, "For example: entropy>3")
    try:
        made = _Tree(source).transform(_parser().parse(source))
    except VisitError as error:
        if isinstance(error.orig_exc, ConditionError):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        raise _unexpected(source, error) from None
    except RecursionError:
        raise ConditionError("the condition is nested too deeply", source, 0) from None
    return made  # type: ignore[no-any-return]  # lark is not typed here


def _unexpected(source: str, error: UnexpectedInput) -> ConditionError:
    at = error.pos_in_stream if error.pos_in_stream is not None else len(source)
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        at = len(source)
    expected = _words(error)
    if isinstance(error, UnexpectedCharacters):
        char = source[at : at + 1]
        if char in ('"', "'"):
            return ConditionError("this quote is never closed", source, at)
        if char.isdigit() or (char == "-" and source[at + 1 : at + 2].isdigit()):
            return ConditionError("this is no number", source, at, "Write 3, 0.5, 90% or 3x")
        what = f"{char!r} does not belong here"
    elif at >= len(source):
        what = "the condition ends too early"
    else:
        what = f"{str(token)!r} does not belong here"
    return ConditionError(f"{what}; expected {expected}" if expected else what, source, at)


def _words(error: UnexpectedInput) -> str:
    """What could stand there, in the words of people."""
    names = getattr(error, "accepts", None) or getattr(error, "expected", None)
    names = names or getattr(error, "allowed", None) or ()
    names = set(names) - ({"NAME"} if "NUMBER" in names else set())
    return ", ".join(word for name, word in _EXPECTED.items() if name in names)


@dataclass(frozen=True, slots=True)
class _Argument:
    token: Token


@v_args(inline=True)
class _Tree(Transformer):  # type: ignore[type-arg]  # a generic only for checkers
    """lark's tree → nodes, from the leaves up."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def either(self, *parts: Condition) -> Condition:
        return Or(tuple(parts))

    def both(self, *parts: Condition) -> Condition:
        return And(tuple(parts))

    def negated(self, part: Condition) -> Condition:
        return Not(part)

    def argument(self, token: Token) -> _Argument:
        return _Argument(token)

    def value(self, token: Token) -> Token:
        return token

    def comparison(
        self,
        name: Token,
        argument: _Argument | None,
        operator: Token | None,
        value: Token | None,
    ) -> Condition:
        inside = None if argument is None else argument.token
        return checked(Raw(self._source, name, inside, operator, value))
