"""`config.toml` and the options of a daemon."""

import math
import re
import stat
from pathlib import Path

import msgspec
import pytest

from engine_daemon.config import Asked, Config, DaemonOptions, read_config
from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.settings import KEYS, Key

PAGE = Path(__file__).resolve().parent.parent / "docs" / "config.md"


def written(folder: Path, text: str) -> Path:
    (folder / "config.toml").write_text(text, "utf-8")
    return folder


def test_no_file_is_an_empty_configuration(tmp_path: Path) -> None:
    assert read_config(tmp_path) == Config()


def test_everything_at_once(tmp_path: Path) -> None:
    config = read_config(
        written(
            tmp_path,
            """
            [paths]
            state = "/data/state"
            [screen]
            theme = "paper"
            [daemon.big]
            model = "owner/name"
            max_context = 4096
            idle_exit = "never"
            dtype = "bf16"
            plain_engine = true
            verify = true
            share = "alice,@lab"
            [remote."gpu.lab"]
            command = "uv run llm-inspect"
            """,
        )
    )
    assert config.remotes == {"gpu.lab": ("uv", "run", "llm-inspect")}
    assert config.state == Path("/data/state")
    assert config.theme == "paper"
    assert config.daemons["big"] == Asked(
        model="owner/name",
        max_context=4096,
        idle_exit_s=math.inf,
        dtype="bf16",
        plain_engine=True,
        verify=True,
        share="alice,@lab",
    )
    assert config.paths("big").state.is_relative_to("/data/state")


KNOWN = f"Known: {', '.join(sorted(key.name for key in KEYS if key.section == 'daemon'))}"


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("[path]", "unknown key 'path' at the top", "Did you mean paths?"),
        ("[paths]\nsate = '/x'", "unknown key 'sate' in [paths]", "Did you mean state?"),
        ("[paths]\nstate = 'x'", "takes an absolute path", ""),
        ("[daemon.a]\nmodle = 'x'", "unknown key 'modle' in [daemon.a]", "Did you mean model?"),
        ("[daemon.a]\nhttp = 1", "unknown key 'http' in [daemon.a]", KNOWN),
        ("[daemon.a]\ntp = 65", "at most 64", ""),
        ("[daemon.a]\nidle_exit = 'x'", "takes a duration", ""),
        ("[daemon.a]\nmodel = true", "takes a text or a number", ""),
        ('[paths]\nstate = "/a\\u0000b"', "takes an absolute path", ""),
        ('[daemon.a]\nmodel = "a\\u0000b"', "NUL", ""),
        ("[daemon.a]\nmax_context = 1" + "0" * 23, "must be at most", ""),
        ("[daemon.a]\nidle_exit = 1" + "0" * 23, "must be at most", ""),
        ("[daemon.a]\nplain_engine = 1", "takes true or false", ""),
        ("[daemon]\na = 1", "must be a section", ""),
        ("[remote.a]\ncomand = 'x'", "unknown key 'comand' in [remote.a]", "Did you mean command?"),
        ("[remote.a]\ncommand = 'x \"y'", "takes a command", ""),
        ("[remote]\na = 1", "must be a section", ""),
        ("[screen]\ntheme = 3", "takes a theme's name", ""),
        ("x = ", "cannot read", "Mend the file or move it away"),
    ],
)
def test_faults_name_file_and_key(tmp_path: Path, text: str, words: str, hint: str) -> None:
    with pytest.raises(InspectError) as raised:
        read_config(written(tmp_path, text))
    assert words in raised.value.message
    assert "config.toml" in raised.value.message
    assert raised.value.hint == hint
    assert raised.value.exit_code == 2


def page_rows() -> list[tuple[str, str, str, str]]:
    """Section, key, example and meaning of every row of the page."""
    rows, section = [], ""
    for line in PAGE.read_text("utf-8").splitlines():
        if found := re.fullmatch(r"## `\[(\w+)[.\w]*\]`", line):
            section = found[1]
        elif found := re.fullmatch(r"\| `(\w+)` \| `(.*?)` \| (.*) \|", line):
            rows.append((section, found[1], found[2], found[3]))
    return rows


def test_every_key_is_on_the_page_as_it_is() -> None:
    assert page_rows() == [(key.section, key.name, key.example, key.says) for key in KEYS]
    assert "docs/config.md" in (PAGE.parents[1] / "README.md").read_text("utf-8")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.section}.{key.name}")
def test_every_example_of_the_page_is_taken(tmp_path: Path, key: Key) -> None:
    section = f"{key.section}.x" if key.section in ("daemon", "remote") else key.section
    config = read_config(written(tmp_path, f"[{section}]\n{key.name} = {key.example}\n"))
    assert config != Config()


def test_every_option_of_a_daemon_has_a_key() -> None:
    fields = {key.field for key in KEYS if key.section == "daemon"}
    assert fields == set(Asked.__struct_fields__)


def test_a_theme_that_is_nowhere_is_named_with_the_nearest(tmp_path: Path) -> None:
    folder = written(tmp_path, '[screen]\ntheme = "papr"\n')
    with pytest.raises(InspectError) as raised:
        read_config(folder)
    assert raised.value.message == f"{folder}/config.toml: theme in [screen] names no theme: 'papr'"
    assert (raised.value.hint, raised.value.exit_code) == ("Did you mean paper?", 2)
    faults: list[InspectError] = []
    assert read_config(folder, faults) == Config()
    assert len(faults) == 1
    (folder / "themes").mkdir()
    (folder / "themes" / "broken.toml").write_text("name = ", "utf-8")
    (folder / "themes" / "mine.toml").write_text('name = "papr"', "utf-8")
    assert read_config(folder).theme == "papr"


def test_what_is_right_can_be_used_though_something_is_wrong(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        """
        strange = 1
        [paths]
        state = "/data/state"
        cache = "relative"
        [screen]
        theme = 3
        [daemon.good]
        model = "m"
        dtyp = "fp32"
        [daemon."bad name"]
        model = "m"
        [remote.box]
        command = ""
        """,
    )
    faults: list[InspectError] = []
    config = read_config(folder, faults)
    assert config == Config(state=Path("/data/state"), daemons={"good": Asked(model="m")})
    assert [fault.message.split(": ", 1)[-1].split(",")[0] for fault in faults] == [
        "unknown key 'strange' at the top",
        "cache in [paths] takes an absolute path",
        "theme in [screen] takes a theme's name",
        "unknown key 'dtyp' in [daemon.good]",
        "'bad name' is no daemon name",
        "command in [remote.box] takes a command",
    ]
    assert read_config(written(tmp_path, "x = "), faults) == Config()
    assert "cannot read" in faults[-1].message


def test_the_command_line_counts_more_than_the_section() -> None:
    both = Asked(model="a").over(Asked(model="b", dtype="fp32"))
    assert both.given() == {"model": "a", "dtype": "fp32"}


def test_asked_options_are_put_into_those_of_the_daemon() -> None:
    before = DaemonOptions(engine=EngineOptions(model="m", cache_dir="/c"), idle_exit_s=60)
    after = Asked(dtype="fp32", idle_exit_s=math.inf).applied_to(before)
    assert after.engine == EngineOptions(model="m", dtype="fp32", cache_dir="/c")
    assert after.idle_exit_s is None
    # A model goes with its engine.
    other = Asked(engine="scripted").applied_to(before).engine
    assert other == EngineOptions(backend="scripted", cache_dir="/c")
    both = Asked(engine="scripted", model="scripted:rate=9").applied_to(before).engine
    assert both.model == "scripted:rate=9"


def test_each_of_several_devices_has_one_rank() -> None:
    one = DaemonOptions(engine=EngineOptions())
    four = Asked(device="cuda:0,2,4,5").applied_to(one)
    assert (four.engine.tp, four.engine.ranks) == (4, 4)
    assert Asked(device="cuda:1").applied_to(four).engine.ranks == 1
    assert Asked(device="cpu", tp=2).applied_to(one).engine.ranks == 2
    for asked, options in ((Asked(tp=2), four), (Asked(device="cuda:1,3", tp=3), one)):
        with pytest.raises(InspectError) as raised:
            asked.applied_to(options)
        assert raised.value.exit_code == 2
        assert "each device has one rank" in raised.value.message


def test_options_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "options.json"
    options = DaemonOptions(engine=EngineOptions(model="m"), idle_exit_s=2.5, implicit=True)
    options.save(path)
    assert DaemonOptions.read(path) == options
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("{", "utf-8")
    with pytest.raises(msgspec.MsgspecError):
        DaemonOptions.read(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("[daemon.q]\nspool_bytes = " + "9" * 5000, "a number in it is too long"),
        ("[daemon.q]\nrows_bytes = 99999999999999999999", "must be at most 9223372036854775807"),
        ("[daemon.q]\ncache_bytes = 99999999999999999999", "must be at most 9223372036854775807"),
    ],
)
def test_more_than_can_be_read(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InspectError, match=words):
        read_config(written(tmp_path, text))
    faults: list[InspectError] = []
    assert read_config(written(tmp_path, text), faults).state is None
    assert words in faults[0].message


def test_options_that_are_nested_without_end_are_none(tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text('{"x": ' + "[" * 100_000)
    with pytest.raises(msgspec.MsgspecError):
        DaemonOptions.read(tmp_path / "options.json")
