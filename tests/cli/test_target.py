"""What is asked for against what runs."""

import math

import pytest

from engine_daemon.cli.options import Given
from engine_daemon.cli.target import attach_target, differences, reached, target_of
from engine_daemon.config import Asked, DaemonOptions
from engine_daemon.errors import InspectError
from engine_daemon.protocol.state import EngineState
from engine_daemon.protocol.values import ModelInfo
from engine_daemon.protocol.worker import EngineOptions
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
        (Asked(idle_exit_s=math.inf), ("idle-exit", "never", "2h")),
        (Asked(plain_engine=True), ("plain-engine", "on", "off")),
    ],
)
def test_another(asked: Asked, difference: tuple[str, str, str]) -> None:
    assert differences(asked, RUNNING, LOADED) == [difference]


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
