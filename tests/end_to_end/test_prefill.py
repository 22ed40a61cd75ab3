"""Long prompts, scores and naive decoding through the real command, with the scripted engine."""

import re

from engine_daemon.protocol.commands import CHUNK
from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Line, Place

SLOW = ("--engine", "scripted", "--model", "scripted:rate=4,context=9000")
LONG = "Q" * 3000


def of(lines: list[Line], event: str) -> list[Line]:
    return [line for line in lines if line["event"] == event]


def test_scores_come_after_the_prompt_and_before_the_first_step(place: Place) -> None:
    text = "Q" * (CHUNK + 90)
    words = ("run", *SCRIPTED, "--json", "--steps", "3", text)
    lines = place.json(*words, "--score-prompt")
    names = [line["event"] for line in lines]
    assert sorted(names[:2]) == ["prompt", "ready"]
    assert names[2:] == ["prompt_scored", "step", "step", "step", "done"]
    (scored,) = of(lines, "prompt_scored")
    assert set(scored) == {"event", "logprobs", "ranks"}
    assert len(scored["logprobs"]) == len(scored["ranks"]) == len(text)
    assert scored["logprobs"][0] is scored["ranks"][0] is None
    assert all(x <= 0 for x in scored["logprobs"][1:])
    assert all(rank >= 1 for rank in scored["ranks"][1:])
    first = of(lines, "step")[0]
    assert (first["phase"], first["processed"]) == ("prefill", len(text))
    plain = place.json(*words)
    assert not of(plain, "prompt_scored")
    assert plain[-1]["ids"] == lines[-1]["ids"]


def test_what_was_generated_scores_as_it_did_when_it_is_a_prompt(place: Place) -> None:
    """The scores of a prompt are the probabilities its tokens had when they were generated."""
    words = ("run", *SCRIPTED, "--json", "--temperature", "1", "--seed", "3")
    lines = place.json(*words, "--steps", "12", "Hello")
    text = "Hello" + lines[-1]["text"]
    again = place.json(*words, "--steps", "1", "--score-prompt", text)
    ids = [token["id"] for token in of(again, "prompt")[0]["tokens"]]
    before = len(of(lines, "prompt")[0]["tokens"])
    if ids[before:] == lines[-1]["ids"]:  # text cut up as it was made
        chosen = [step["chosen"] for step in of(lines, "step")]
        (scored,) = of(again, "prompt_scored")
        assert scored["ranks"][before:] == [each["rank"] for each in chosen]
        for found, each in zip(scored["logprobs"][before:], chosen, strict=True):
            assert abs(found - each["logprob"]) < 1e-5


def test_without_a_cache_each_step_reads_everything(place: Place) -> None:
    lines = place.json("run", *SCRIPTED, "--json", "--steps", "5", "--no-kv-cache", "Hello there")
    steps = of(lines, "step")
    assert [step["processed"] for step in steps] == [step["position"] for step in steps]
    assert {step["cache"]["mode"] for step in steps} == {"none"}
    cached = place.json("run", "--json", "--steps", "5", "Hello there")
    assert cached[-1]["ids"] == lines[-1]["ids"]
    assert [step["processed"] for step in of(cached, "step")][1:] == [1] * 4


def test_pause_and_step_within_a_long_prompt(place: Place) -> None:
    place.run("daemon", "start", *SLOW)
    running = place.start("run", "--json", "--steps", "2", LONG)
    found: list[Line] = []

    def reads() -> bool:
        found[:] = [s for s in place.status()["sessions"] if s["place"]["kind"] == "prefill"]
        return bool(found)

    wait_for(reads)
    session = found[0]["session"]
    running.until("prompt")  # it is longer than a pipe: a run that cannot write hears nothing
    paused = place.run("pause", session).out.decode()
    read = re.search(r"stands at step 0, (\d+) of 3000 read", paused)
    assert read is not None, paused
    running.said("the run waits")  # and has given its lease back
    stepped = place.run("step", session).out.decode()
    assert f"stands at step 0, {int(read[1]) + CHUNK} of 3000 read" in stepped
    stepped = place.run("step", session, "9").out.decode()
    assert "stands at step 0" in stepped
    assert "read" not in stepped
    place.run("resume", session)
    assert len(running.finish(0).lines) >= 3
