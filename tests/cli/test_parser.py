"""The grammar of the command line."""

import pytest

from engine_daemon.cli import control
from engine_daemon.cli.help import help_text
from engine_daemon.cli.options import OPTIONS, Given, Group, options_of
from engine_daemon.cli.parser import COMMANDS, SCREEN, parse
from engine_daemon.errors import InspectError


def complaint(*words: str) -> str:
    with pytest.raises(InspectError) as raised:
        parse(words)
    assert raised.value.exit_code == 2
    assert len(raised.value.lines().splitlines()) <= 2
    return raised.value.lines()


@pytest.mark.parametrize(
    ("words", "command", "arguments"),
    [
        ([], SCREEN, []),
        (["hello world"], SCREEN, ["hello world"]),
        (["Kubernetes"], SCREEN, ["Kubernetes"]),
        (["Hello"], SCREEN, ["Hello"]),
        (["--", "run"], SCREEN, ["run"]),
        (["--steps", "3", "--", "-x"], SCREEN, ["-x"]),
        (["- a list"], SCREEN, ["- a list"]),
        (["run", "-"], "run", ["-"]),
        (["run", "--json", "hi", "--steps", "3"], "run", ["hi"]),
        (["run", "--", "--json"], "run", ["--json"]),
        (["step", "K3", "--name", "x", "5"], "step", ["K3", "5"]),
        (["sessions"], "sessions list", []),
        (["sessions", "--json"], "sessions list", []),
        (["models", "list"], "models list", []),
        (["daemon", "start"], "daemon start", []),
        (["attach"], "attach", []),
    ],
)
def test_what_a_line_means(words: list[str], command: str, arguments: list[str]) -> None:
    parsed = parse(words)
    assert (parsed.command, parsed.arguments) == (command, arguments)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("logs", "daemon logs"),
        ("status", "daemon status"),
        ("stop", "daemon stop"),
        ("rm", "sessions rm"),
        ("rnu", "run"),
        ("atach", "attach"),
        ("Resume", "resume"),
        ("demon", "daemon"),
        ("op", "open"),
    ],
)
def test_a_lone_word_that_is_almost_a_command_is_no_prompt(word: str, meant: str) -> None:
    assert f"did you mean {meant}?" in complaint(word)
    assert f"llm-inspect -- {word}" in complaint(word)


@pytest.mark.parametrize(
    "words", [["open", "a.lir"], ["replay", "a.lir"], ["export", "a.lir"], ["diff", "a", "b"]]
)
def test_commands_on_recordings(words: list[str]) -> None:
    parsed = parse(words)
    assert (parsed.command, parsed.arguments) == (words[0], words[1:])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run", "a", "b"], "quotes"),
        (["two", "words"], "quotes"),
        (["pause"], "pause needs SESSION"),
        (["step", "A", "1", "2"], "one argument too many"),
        (["daemon"], "start|stop|restart"),
        (["daemon", "strat"], "Did you mean start?"),
        (["--jsno", "run", "x"], "llm-inspect run …"),
        (["--name", "x", "run"], "the command comes first"),
        (["run", "x", "--temprature", "1"], "Did you mean --temperature?"),
        (["run", "x", "--http", "1"], "See llm-inspect run --help"),
        (["run", "x", "--score-prompts"], "unknown option --score-prompts"),
        (["run", "x", "--stopp", "a"], "unknown option --stopp"),
        (["run", "x", "--steps"], "--steps needs a value"),
        (["run", "x", "--steps", "-1"], "--steps must be at least 0"),
        (["run", "x", "--top-p", "nan"], "--top-p must be a finite number"),
        (["run", "x", "--top-p", "1.5"], "--top-p must be at most 1"),
        (["run", "x", "--presence-penalty=-1e39"], "--presence-penalty must be at least -100"),
        (["run", "x", "--frequency-penalty", "1e308"], "--frequency-penalty must be at most 100"),
        (["run", "x", "--repetition-penalty", "1e-9"], "--repetition-penalty must be at least"),
        (["run", "x", "--temperature", "1e-300"], "--temperature must be at least 1e-06"),
        (["run", "x", "--until", 'token="\udcff"'], "--until is not UTF-8"),
        (["run", "x", "--candidates", "0"], "--candidates must be at least 1"),
        (["run", "x", "--seed", str(2**64)], "--seed must be at most"),
        (["run", "x", "--tp", "65"], "at most 64"),
        (["run", "x", "--engine", "vllm"], "not supported in this version"),
        (["run", "x", "--name", "a/b"], "no daemon name"),
        (["run", "x", "--json=yes"], "--json"),
        (["-hello world"], "comes after --"),
        (["pause", "K", "--as", "a" * 65], "at most 64 characters"),
        (["pause", "K", "--as", "a\nb"], "control"),
        (["pause", "K", "--as", "a\udcff"], "not UTF-8"),
        (["run", "x", "--steps", "9" * 25], "at most"),
        (["daemon", "start", "--idle-exit", "soon"], "--idle-exit takes a duration"),
        (["pause", "K", "--steps", "3"], "unknown option --steps"),
    ],
)
def test_complaints(words: list[str], part: str) -> None:
    assert part in complaint(*words)


def test_negative_numbers_are_values() -> None:
    assert parse(["run", "x", "--presence-penalty", "-0.5"]).given.presence_penalty == -0.5


def test_a_count_below_one_is_named_as_such() -> None:
    parsed = parse(["step", "K", "-3"])
    assert parsed.arguments == ["K", "-3"]
    with pytest.raises(InspectError, match="N must be at least 1"):
        control.main("step", parsed.arguments, parsed.given)
    assert "unknown option -3" in complaint("pause", "K", "-3")


def test_help_of_force_shows_its_choice() -> None:
    assert "force SESSION (--id ID | --text TEXT)" in help_text("force")
    assert "force SESSION (--id ID | --text TEXT)" in help_text("")


def test_help_of_force_says_that_a_text_may_be_several_tokens() -> None:
    shown = help_text("force")
    assert "Append these tokens." in shown
    assert "a text; its tokens are appended one after the other" in shown


def test_help_and_version_win_over_everything_else() -> None:
    assert parse(["run", "--help"]).given.help
    assert parse(["daemon", "-h"]).given.help
    assert parse(["help"]).given.help
    assert parse(["--version"]).given.version


def test_help_with_the_name_of_a_command() -> None:
    for words in (["help", "run"], ["run", "--help"]):
        assert parse(words).command == "run"
        assert parse(words).given.help
    assert parse(["help", "daemon", "start"]).command == "daemon start"
    for words in (["help", "daemon"], ["daemon", "--help"], ["daemon", "-h"]):
        assert parse(words).command == "daemon"
        assert parse(words).given.help
    assert parse(["sessions", "--json", "--help"]).command == "sessions"
    assert parse(["daemon", "logs", "--help"]).command == "daemon logs"


@pytest.mark.parametrize("word", ["daemon", "sessions", "models"])
def test_help_of_a_word_lists_its_verbs_and_all_their_options(word: str) -> None:
    text = help_text(word)
    assert max(map(len, text.splitlines())) <= 100
    for name, command in COMMANDS.items():
        if name.startswith(f"{word} "):
            assert f"llm-inspect {name}" in text
            assert command.help in text
            for option in options_of(command.groups):
                assert option.flag in text.split(), option.flag


def test_help_lists_every_option_of_every_command() -> None:
    text = help_text(SCREEN)
    for option in OPTIONS:
        assert option.flag in text.replace(",", " ").split(), option.flag
    for name, command in COMMANDS.items():
        for option in options_of(command.groups):
            assert option.flag in help_text(name).split(), (name, option.flag)


def test_every_option_has_its_field_and_some_command() -> None:
    fields = set(Given.__dataclass_fields__)
    assert {option.field for option in OPTIONS} == fields
    taken = {o.flag for command in COMMANDS.values() for o in options_of(command.groups)}
    assert taken == {option.flag for option in OPTIONS}
    assert Group.NONE not in [option.group for option in OPTIONS]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_every_command(name: str) -> None:
    text = help_text(name)
    assert text.startswith(f"Usage: llm-inspect {name}".rstrip())
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("diff a.lir", "diff needs B"),
        ("diff", "diff needs A"),
        ("sessions rename K", "sessions rename needs TITLE"),
        ("step", "step needs SESSION"),
    ],
)
def test_what_is_missing_is_named(line: str, said: str) -> None:
    with pytest.raises(InspectError) as raised:
        parse(line.split())
    assert raised.value.message == said
