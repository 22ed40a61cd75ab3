"""`engine_daemon.tokens.templates`: renders what transformers does, inside its sandbox."""

import contextlib
from typing import Any

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.tokens.templates import ChatTemplate

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": '  Ünï <b> & "q" {{ x }}\n'}

TEMPLATES = {
    "ChatML": """{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + m['role']
 + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "namespace": """{{- bos_token }}
{%- set ns = namespace(system='', n=0) %}
{%- for m in messages if m.role == 'system' %}
    {%- set ns.system = m.content | trim %}
{%- endfor %}
[INST] {{ ns.system }}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- set ns.n = ns.n + 1 %}
 {{ ns.n }}: {{ m['content'].strip() }} [/INST]
    {%- elif m.role not in ('system', 'assistant') %}
        {{- raise_exception('unknown role ' ~ m.role) }}
    {%- endif %}
{%- endfor %}""",
    "loop controls": """{% for m in messages %}
{% if m.role == 'system' %}{% continue %}{% endif %}
    {{ m.content | tojson }}
{% break %}
{% endfor %}
{{ messages | tojson(indent=2) }}""",
    "generation": """{% for m in messages %}{% generation %}{{ m.content }}{{ eos_token }}
{% endgeneration %}{% endfor %}""",
    "blocks": "{% if tools %}\n  a\n{% endif %}\n  {% if not documents %}\n  b\n  {% endif %}",
    "dates": "{{ strftime_now('%Y')[:2] }}{% set d = dict(a=1) %}{{ d.a }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [[USER], [SYSTEM, USER]], ids=["user", "system"])
def test_equal_to_transformers(name: str, messages: list[dict[str, str]]) -> None:
    rendering: Any = pytest.importorskip("transformers.utils.chat_template_utils")
    theirs, _ = rendering.render_jinja_template(
        [messages], chat_template=TEMPLATES[name], add_generation_prompt=True, **TOKENS
    )
    assert ChatTemplate(TEMPLATES[name], TOKENS).render(messages) == theirs[0]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for %}", "line 1"),
        ("\n\n{{ x y }}", "line 3"),
        (
            "{{ raise_exception('Only user roles\nare supported') }}",
            "Only user roles are supported",
        ),
        ("{{ messages[7].content }}", "has no element 7"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages + 1 }}", "can only concatenate"),
        ("{{ undefined_thing() }}", "'undefined_thing' is undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ 'x' * 99999999999999 }}", "failed"),
        ("{{ '\\ud800' }}", "surrogates not allowed"),
        ("{% include 'other' %}", "failed"),
        ("{{ range(10 ** 9) | list }}", "Range too big"),
    ],
)
def test_a_template_that_fails_is_one_plain_sentence(source: str, said: str) -> None:
    with pytest.raises(InspectError) as caught:
        ChatTemplate(source, TOKENS).render([USER])
    error = caught.value
    assert error.code == "template_failed"
    assert said in error.message
    assert "\n" not in error.message
    assert len(error.message) < 300
    assert "--raw" in error.hint


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__['os'].getcwd() }}",
        "{{ self._TemplateReference__context }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    said = ""
    with contextlib.suppress(InspectError):
        said = ChatTemplate(source, TOKENS).render([USER])
    assert said == ""


def test_messages_given_stay_as_they_are() -> None:
    messages = [dict(USER)]
    ChatTemplate("{{ messages[0].content }}", {}).render(messages)
    assert messages == [USER]
