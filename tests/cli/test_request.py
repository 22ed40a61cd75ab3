"""From options to a sampler, an `open` and what is asked of a daemon."""

from pathlib import Path

import pytest

from engine_daemon.cli.options import Given
from engine_daemon.cli.request import asked, open_command, sampler, who
from engine_daemon.errors import InspectError
from engine_daemon.protocol.values import PromptSpec

PROMPT = PromptSpec(text=b"hi")


def test_greedy_is_the_default_and_a_seed_is_drawn() -> None:
    one, other = sampler(Given()), sampler(Given())
    assert one.greedy
    assert one.seed != other.seed
    assert all(0 <= s.seed < 2**53 for s in (one, other))  # exact in any JSON reader


@pytest.mark.parametrize(
    "given",
    [
        Given(temperature=0.7),
        Given(top_k=5),
        Given(top_p=0.9),
        Given(min_p=0.1),
        Given(seed=0),
    ],
)
def test_any_of_the_five_means_sampling_with_the_rest_neutral(given: Given) -> None:
    made = sampler(given)
    assert not made.greedy
    assert made.temperature == (given.temperature or 1.0)
    assert made.top_k == (given.top_k or 0)
    assert made.top_p == (given.top_p or 1.0)
    assert made.min_p == (given.min_p or 0.0)


def test_temperature_zero_is_greedy() -> None:
    made = sampler(Given(temperature=0.0, seed=7))
    assert (made.greedy, made.temperature, made.seed) == (True, 1.0, 7)


def test_penalties_apply_to_greedy_too() -> None:
    made = sampler(Given(repetition_penalty=1.2, presence_penalty=-1.0))
    assert (made.greedy, made.repetition_penalty, made.presence_penalty) == (True, 1.2, -1.0)


@pytest.mark.parametrize(
    "given",
    [
        Given(greedy=True, top_k=5),
        Given(greedy=True, top_p=0.5),
        Given(greedy=True, min_p=0.5),
        Given(temperature=0.0, top_k=5),
        Given(greedy=True, temperature=0.5),
    ],
)
def test_greedy_excludes_what_only_sampling_knows(given: Given) -> None:
    with pytest.raises(InspectError, match="exclude each other"):
        sampler(given)


def test_open_of_a_run_and_of_a_screen() -> None:
    run = open_command(Given(steps=5, max_context=64, no_kv_cache=True), PROMPT, run=True)
    assert (run.run_to, run.max_steps, run.limit_tokens, run.cache_mode) == (None, 5, 64, "none")
    assert run.candidates == 20
    assert open_command(Given(), PROMPT, run=False).run_to == 0
    assert open_command(Given(steps=0), PROMPT, run=True).run_to == 0


def test_a_local_model_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert asked(Given(model="mine")).model == str(tmp_path / "mine")
    assert asked(Given(model="./not-there")).model == str(tmp_path / "not-there")
    assert asked(Given(model="owner/name")).model == "owner/name"
    assert asked(Given(model="smollm2-135m")).model == "smollm2-135m"


def test_who() -> None:
    assert who(Given(who="Ada")) == "Ada"
    assert "@" in who(Given())
