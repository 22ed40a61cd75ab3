"""Roles that a chat template does not know, with what real templates do about them."""

from collections.abc import Sequence

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.tokens.roles import check_kept, check_spelling
from engine_daemon.tokens.templates import ChatTemplate

Pairs = Sequence[tuple[str, str]]

CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'
 + message['content'] + '<|im_end|>\n'}}{% endfor %}"""
QWEN = """{%- for message in messages %}
{%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- elif message.role == "assistant" %}{{- '<|im_start|>assistant\n' + message.content }}
{%- elif message.role == "tool" %}{{- '<tool_response>' + message.content }}{%- endif %}
{%- endfor %}"""
GEMMA = """{{ bos_token }}{% for message in messages %}
{% if message['role'] not in ['user', 'assistant'] %}
{{ raise_exception('System role not supported') }}{% endif %}{{ message['content'] | trim }}
{% endfor %}"""


def render(source: str, messages: Pairs) -> str:
    """As `hf` does it."""
    template = ChatTemplate(source, {"bos_token": "<s>"})

    def one(some: Pairs) -> str:
        return template.render([{"role": role, "content": text} for role, text in some])

    check_spelling(messages, template.named)
    rendered = one(messages)
    check_kept(messages, template.named, rendered, one)
    return rendered


@pytest.mark.parametrize("source", [CHATML, QWEN, GEMMA], ids=["ChatML", "Qwen", "Gemma"])
@pytest.mark.parametrize(
    ("role", "meant"),
    [("sytem", "system"), ("usr", "user"), ("User", "user"), ("asistant", "assistant")],
)
def test_a_mistyped_role_is_refused_whatever_the_template_does(
    source: str, role: str, meant: str
) -> None:
    with pytest.raises(InspectError) as raised:
        render(source, [("user", "Hi"), (role, "Be brief.")])
    error = raised.value
    assert error.message == (
        f"message 2 has the role {role!r}, which the chat template does not know"
    )
    assert error.hint == f"Did you mean {meant}?"
    assert error.exit_code == 2


def test_a_role_whose_words_are_left_out_is_refused() -> None:
    """Qwen's template says nothing and writes nothing."""
    with pytest.raises(InspectError) as raised:
        render(QWEN, [("critic", "Too long."), ("user", "Hi")])
    assert raised.value.message.endswith("does not know and leaves out")
    assert raised.value.hint == "It knows system, user, assistant, tool"


def test_a_role_that_is_written_as_it_is_is_somebodys_own() -> None:
    assert "critic\nToo long." in render(CHATML, [("critic", "Too long."), ("user", "Hi")])


def test_a_role_that_the_template_names_may_be_near_another() -> None:
    source = CHATML.replace("messages %}", "messages if message.role != 'users' %}", 1)
    assert "user\nHi" in render(source, [("users", "all of them"), ("user", "Hi")])


def test_a_template_that_raises_says_so_itself() -> None:
    with pytest.raises(InspectError, match="System role not supported"):
        render(GEMMA, [("system", "Be brief."), ("user", "Hi")])


def test_each_role_is_tried_once() -> None:
    tries: list[Pairs] = []

    def one(some: Pairs) -> str:
        tries.append(some)
        return str(some)

    messages = [("user", "Hi"), ("critic", "No.")] * 500
    check_kept(messages, {"user"}, str(messages), one)
    assert len(tries) == 1


def test_a_conversation_of_many_roles_is_not_written_once_for_each() -> None:
    messages = [(f"role{n}", "text") for n in range(500)]
    written: list[int] = []

    def counted(some: Pairs) -> str:
        written.append(len(some))
        return "\n".join(f"{role}: {text}" for role, text in some)

    check_kept(messages, (), counted(messages), counted)
    assert 1 < len(written) < 50
