"""`config.toml` and the options of a daemon."""

import math
import stat
from pathlib import Path

import msgspec
import pytest

from engine_daemon.config import Asked, Config, DaemonOptions, read_config
from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions


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
            """,
        )
    )
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


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("[path]", "unknown key 'path' at the top", "Did you mean paths?"),
        ("[paths]\nsate = '/x'", "unknown key 'sate' in [paths]", "Did you mean state?"),
        ("[paths]\nstate = 'x'", "takes an absolute path", ""),
        ("[daemon.a]\nmodle = 'x'", "unknown key 'modle' in [daemon.a]", "Did you mean model?"),
        ("[daemon.a]\ntp = 65", "at most 64", ""),
        ("[daemon.a]\nidle_exit = 'x'", "takes a duration", ""),
        ("[daemon.a]\nmodel = true", "takes a text or a number", ""),
        ('[paths]\nstate = "/a\\u0000b"', "takes an absolute path", ""),
        ('[daemon.a]\nmodel = "a\\u0000b"', "NUL", ""),
        ("[daemon.a]\nmax_context = 1" + "0" * 23, "must be at most", ""),
        ("[daemon.a]\nidle_exit = 1" + "0" * 23, "must be at most", ""),
        ("[daemon.a]\nplain_engine = 1", "takes true or false", ""),
        ("[daemon]\na = 1", "must be a section", ""),
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


def test_the_command_line_counts_more_than_the_section() -> None:
    both = Asked(model="a").over(Asked(model="b", dtype="fp32"))
    assert both.given() == {"model": "a", "dtype": "fp32"}


def test_asked_options_are_put_into_those_of_the_daemon() -> None:
    before = DaemonOptions(engine=EngineOptions(model="m", cache_dir="/c"), idle_exit_s=60)
    after = Asked(engine="scripted", idle_exit_s=math.inf).applied_to(before)
    assert after.engine == EngineOptions(backend="scripted", model="m", cache_dir="/c")
    assert after.idle_exit_s is None


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
