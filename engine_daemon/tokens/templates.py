"""A model's chat template: messages → the text the model was trained on. Jinja in a sandbox.

Offers what templates expect of transformers' own renderer. A template comes with the model and is
not trusted; one that runs too long is ended with its process, by the hub. Knows no tokenizer.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine_daemon.errors import InspectError

_FAULTS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template can raise by its own mistakes."""
_HINT: Final = "Use --raw to send the text without the chat template"


class ChatTemplate:
    """A compiled template with the variables (special tokens) it may use. `named`: the texts that
    its expressions hold, among them the roles it asks for."""

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            constants = environment.parse(source).find_all(nodes.Const)
        except _FAULTS as error:
            raise _failed(error) from error
        self.named = frozenset(one.value for one in constants if isinstance(one.value, str))
        self._variables = dict(variables)

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for `messages`, up to where the assistant's answer begins.

        Raises InspectError when the template does, or gives something that is no text.
        """
        try:
            text = self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._variables,
            )
            text.encode()
        except _FAULTS as error:
            raise _failed(error) from error
        return text


def _failed(error: Exception) -> InspectError:
    where = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
    reason = " ".join(str(error).split()) or type(error).__name__
    return InspectError(
        f"the model's chat template failed{where}: {reason[:200]}", _HINT, code="template_failed"
    )


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _Namespace
    return environment


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002  the name that templates may pass
    return datetime.now().strftime(format)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML; models are trained on plain JSON."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _Namespace(jinja2.utils.Namespace):
    """A namespace that takes no underscored names: those lead out of the sandbox."""

    def __init__(*arguments: Any, **attributes: object) -> None:
        for name in dict(*arguments[1:], **attributes):
            _check_name(name)
        jinja2.utils.Namespace.__init__(*arguments, **attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")


class _Generation(Extension):
    """`{% generation %}` marks what the assistant said, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  as the base class has it

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The block's own statements."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
