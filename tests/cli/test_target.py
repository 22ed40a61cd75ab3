"""What is asked for against what runs."""

import math

import pytest

from engine_daemon.cli.asked import NO_OPTIONS, Difference, check_asked, differences
from engine_daemon.cli.options import OPTIONS, Given
from engine_daemon.cli.target import attach_target, reached, target_of
from engine_daemon.config import Asked, DaemonOptions
from engine_daemon.errors import InspectError
from engine_daemon.paths import paths_for
from engine_daemon.protocol.state import EngineState
from engine_daemon.protocol.values import ModelInfo
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.settings import KEYS
from tests.daemons import directories

LOADED = EngineState(
    word="ready",
    model=ModelInfo(
        name="m",
        architecture="A",
        parameters=1,
        dtype="bf16",
        device="cuda:0",
        ranks=1,
        layers=1,
        layer_kinds={},
        vocabulary=1,
        context_length=1,
        weights_bytes=1,
        weights_files=[],
        load_s=0.0,
    ),
)
RUNNING = DaemonOptions(engine=EngineOptions(model="m"), idle_exit_s=7200.0)


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(model="m"),
        Asked(engine="hf"),
        Asked(dtype="auto"),
        Asked(dtype="bf16"),
        Asked(device="cuda"),
        Asked(device="cuda:0"),
        Asked(idle_exit_s=7200.0),
    ],
)
def test_the_same(asked: Asked) -> None:
    assert differences(asked, RUNNING, LOADED) == []


@pytest.mark.parametrize(
    ("asked", "difference"),
    [
        (Asked(model="n"), ("model", "n", "m")),
        (Asked(engine="scripted"), ("engine", "scripted", "hf")),
        (Asked(dtype="fp32"), ("dtype", "fp32", "auto")),
        (Asked(device="cpu"), ("device", "cpu", "auto")),
        (Asked(revision="v2"), ("revision", "v2", "unset")),
        (Asked(idle_exit_s=math.inf), ("idle_exit", "never", "2h")),
        (Asked(plain_engine=True), ("plain_engine", "on", "off")),
    ],
)
def test_another(asked: Asked, difference: tuple[str, str, str]) -> None:
    assert differences(asked, RUNNING, LOADED) == [Difference(*difference)]


def test_what_is_typed_is_suggested_and_what_the_configuration_asks_for_is_named() -> None:
    with directories():
        paths = paths_for("default")
        RUNNING.save(paths.options)
        typed = Asked(model="my model")
        asked = typed.over(Asked(dtype="fp32", idle_exit_s=60.0, spool_bytes=5))
        with pytest.raises(InspectError) as raised:
            check_asked(paths, asked, typed, LOADED)
        message, hint = raised.value.message, raised.value.hint
        assert "runs with model m, dtype auto, idle-exit 2h; asked for was --model" in message
        assert message.endswith("config.toml asks for dtype fp32, idle_exit 1m")
        assert hint.startswith("Restart it: llm-inspect daemon restart --model 'my model'; or")
        assert raised.value.exit_code == 4
        with pytest.raises(InspectError) as raised:
            check_asked(paths, Asked(idle_exit_s=60.0), Asked(), LOADED)
        assert "asked for was" not in raised.value.message
        restart = "Restart it: llm-inspect daemon restart"
        assert raised.value.hint == f"{restart}; or take idle_exit out of config.toml"


def test_keys_without_an_option_are_told_and_will_do() -> None:
    options = {option.flag.removeprefix("--").replace("-", "_") for option in OPTIONS}
    keys = {key.name for key in KEYS if key.section == "daemon"}
    assert keys - options == set(NO_OPTIONS)
    with directories():
        paths = paths_for("default")
        RUNNING.save(paths.options)
        (line,) = check_asked(paths, Asked(spool_bytes=5, model="m"), Asked(), LOADED)
        assert "config.toml asks for spool_bytes 5; the daemon default has 10000000000" in line
        assert line.endswith("llm-inspect daemon restart")


def test_limits_belong_to_the_session_unless_a_daemon_is_started() -> None:
    with directories():
        given = Given(max_context=64)
        assert target_of(given).asked.max_context is None
        assert target_of(given, starts_daemon=True).asked.max_context == 64


@pytest.mark.parametrize("where", ["", "SSH://box", "tcp://box:1", "a/b/c", "/x"])
def test_no_place_to_attach_to(where: str) -> None:
    with pytest.raises(InspectError) as caught:
        attach_target([where], Given())
    assert caught.value.exit_code == 2
    assert "ssh://" in caught.value.hint


def test_where_to_attach() -> None:
    with directories():
        assert attach_target(["big"], Given()).paths.name == "big"
        assert attach_target([], Given(name="big")).paths.name == "big"
        with (
            pytest.raises(InspectError, match="two daemons"),
            reached(["ssh://box/big"], Given(name="big")),
        ):
            pass
        with pytest.raises(InspectError, match="no user"):
            attach_target(["no-such-user/big"], Given())
        for where in ("nobody/big", "ipc:///tmp/x"):
            assert attach_target([where], Given()).paths.endpoint is not None
            with pytest.raises(InspectError, match="two daemons"):
                attach_target([where], Given(name="small"))
        with pytest.raises(InspectError, match="two daemons"):
            attach_target(["big"], Given(name="small"))
