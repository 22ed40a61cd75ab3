"""The model string of the scripted engine."""

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.script import Script, parse_script


@pytest.mark.parametrize("model", ["scripted", EngineOptions().model, "scripted:"])
def test_without_keys(model: str) -> None:
    assert parse_script(model) == Script()


def test_keys() -> None:
    script = parse_script("scripted:rate=5000, eos_at=20,vocab=600")
    assert script == Script(rate=5000, eos_at=20, vocab=600)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("scripted:eos=3", "'eos'"),
        ("scripted:rate=fast", "whole number"),
        ("scripted:rate=-1", "whole number"),
        ("scripted:rate", "whole number"),
        ("scripted:vocab=3", "vocab=3"),
        ("scripted:context=0", "context=0"),
        ("gpt2", "'gpt2'"),
    ],
)
def test_says_what_is_wrong(model: str, says: str) -> None:
    with pytest.raises(InspectError) as caught:
        parse_script(model)
    assert says in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code is Exit.MODEL


def test_names_the_nearest_key() -> None:
    with pytest.raises(InspectError) as caught:
        parse_script("scripted:rat=3")
    assert "rate" in caught.value.hint
