"""Files with ids and with conversations, and conditions on the command line."""

from pathlib import Path

import pytest

from engine_daemon.cli.options import Given
from engine_daemon.cli.parser import parse
from engine_daemon.cli.prepared import read_ids, read_messages
from engine_daemon.cli.prompt import read_prompt
from engine_daemon.cli.request import open_command
from engine_daemon.conditions.faults import ConditionError
from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import pack_ints, unpack_ints
from engine_daemon.protocol.values import ChatMessage, PromptSpec

PROMPT = PromptSpec(text=b"hi")


@pytest.mark.parametrize("text", [b"[1, 2, 900]", b" 1 2\n900\t", b"1\n2\n900"])
def test_ids(text: bytes) -> None:
    assert unpack_ints("I", read_ids(text, "f")) == [1, 2, 900]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[1, -2]", "entry 2"),
        (b"[1, true]", "entry 2 is no token id: true$"),
        (b"[1, 2.5]", "entry 2"),
        (b"1 x", "entry 2"),
        (b"4294967296", "entry 1"),
        (b"[]", "no token id"),
        (b"[1", "no JSON"),
        (b"[[1]]", "entry 1"),
        (b"[" + b"9" * 5000 + b"]", "a number in it is too long"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_ids_that_are_none(text: bytes, words: str) -> None:
    with pytest.raises(InspectError, match=words):
        read_ids(text, "f")


def test_messages() -> None:
    text = '[{"role":"system","content":"Be brief."},{"role":"user","content":"Größe?"}]'
    found = read_messages(text.encode(), "f")
    assert found == [
        ChatMessage(role="system", content=b"Be brief."),
        ChatMessage(role="user", content="Größe?".encode()),
    ]
    assert read_messages(b'{"messages": ' + text.encode() + b"}", "f") == found
    parts = b'[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]'
    assert read_messages(parts, "f") == [ChatMessage(role="user", content=b"ab")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "no list of messages"),
        (b'{"a": 1}', "no list of messages"),
        (b"not json", "no JSON"),
        (b'[{"content": "x"}]', "message 1 has no role"),
        (b'[{"role": "user"}]', "only text"),
        (b'[{"role": "user", "content": [{"type": "image_url"}]}]', "'image_url' is not supported"),
        (b'[{"role": "user", "content": [{"text": "x"}]}]', "only text"),
        (b'[{"role": "user", "content": "x", "tool_calls": []}]', "'tool_calls' is not supported"),
    ],
)
def test_messages_that_are_none(text: bytes, words: str) -> None:
    with pytest.raises(InspectError, match=words):
        read_messages(text, "f")


def test_prompts_from_such_files(tmp_path: Path) -> None:
    ids, messages = tmp_path / "ids", tmp_path / "messages.json"
    ids.write_text("1 2 3")
    messages.write_text('[{"role":"user","content":"hi"}]')
    spec = read_prompt([], Given(prompt_ids=str(ids)))
    assert spec == PromptSpec(text=b"", ids=pack_ints("I", [1, 2, 3]))
    spec = read_prompt([], Given(messages=str(messages), chat=True))
    assert spec is not None
    assert (spec.template, spec.messages) == (True, [ChatMessage(role="user", content=b"hi")])


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["x"], Given(prompt_ids="f")),
        ([], Given(prompt_ids="f", prompt_file="g")),
        ([], Given(prompt_ids="f", messages="g")),
        ([], Given(prompt_ids="f", chat=True)),
        ([], Given(prompt_ids="f", no_specials=True)),
        ([], Given(messages="f", raw=True)),
        ([], Given(messages="f", system="x", chat=True)),
        ([], Given(messages="f", system="x")),
    ],
)
def test_what_excludes_each_other(arguments: list[str], given: Given) -> None:
    with pytest.raises(InspectError, match="exclude each other"):
        read_prompt(arguments, given)


def test_conditions_of_a_command_line() -> None:
    words = ["run", "x", "--until", "entropy>3", "--stop", 'a "b"\n', "--until", "rank>5"]
    given = parse([*words, "--watch", " of", "--watch", "a", "--timeout", "1m30s"]).given
    command = open_command(given, PROMPT, run=True)
    assert command.until == ["entropy>3", "rank>5", 'stop("a \\"b\\"\\n")']
    assert command.watch == [b" of", b"a"]
    assert command.timeout_s == 90


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail-on-until"], "needs --until"),
        (["--watch=a"] * 17, "at most 16"),
        (["--until=step=1"] * 33, "at most 32"),
    ],
)
def test_conditions_that_are_refused(words: list[str], said: str) -> None:
    given = parse(["run", "x", *words]).given
    with pytest.raises(InspectError, match=said):
        open_command(given, PROMPT, run=True)


def test_a_wrong_condition_has_its_picture() -> None:
    with pytest.raises(ConditionError) as caught:
        open_command(Given(until=("step=1", "entropy>>3")), PROMPT, run=True)
    assert caught.value.picture == "entropy>>3\n        ^"


@pytest.mark.parametrize("text", ["0", "soon", "-3"])
def test_a_time_limit_is_longer_than_nothing(text: str) -> None:
    with pytest.raises(InspectError, match="--timeout"):
        parse(["run", "x", f"--timeout={text}"])


def test_half_a_surrogate_pair_is_no_role() -> None:
    with pytest.raises(InspectError, match="message 1 holds half a surrogate pair"):
        read_messages(rb'[{"role": "\ud800", "content": "x"}]', "f")
