"""`--until`, `--stop`, `--timeout`, `--watch`, ready-made prompts: the command as people use it."""

import json

import pytest

from tests.end_to_end.command import SCRIPTED, Line, Place

SAMPLED = ("--temperature", "1.5", "--seed", "4")


def last(lines: list[Line]) -> Line:
    assert lines[-1]["event"] == "done"
    return lines[-1]


def steps_of(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["event"] == "step"]


def test_until_on_the_distribution(place: Place) -> None:
    words = ("run", *SCRIPTED, "--json", *SAMPLED)
    free = steps_of(place.json(*words, "--steps", "40", "Hello"))
    found = next(line for line in free if line["step"] > 3 and line["entropy_bits"] > 5)
    place_of = found["step"]
    lines = place.json(*words, "--until", "entropy>5 and step>3", "Hello")
    done = last(lines)
    assert done["reason"] == "condition"
    assert done["condition"]["source"] == "entropy>5 and step>3"
    assert done["condition"]["values"]["step"] == place_of
    assert done["condition"]["values"]["entropy"] == pytest.approx(found["entropy_bits"])
    assert done["at"] == {"step": place_of, "pending": True}
    assert [line["event"] for line in lines[-2:]] == ["pending", "done"]
    assert lines[-2]["step"] == place_of
    assert done["ids"] == [line["chosen"]["id"] for line in free[:place_of]]


def test_until_on_the_token(place: Place) -> None:
    words = ("run", *SCRIPTED, "--json", *SAMPLED)
    free = steps_of(place.json(*words, "--steps", "40", "Hello"))
    found = next(line for line in free if line["chosen"]["rank"] > 12)
    lines = place.json(*words, "--until", "step=300", "--until", "rank>12", "Hello")
    done = last(lines)
    assert done["at"] == {"step": found["step"], "pending": False}
    assert done["steps"] == found["step"] + 1
    assert done["condition"] == {
        "number": 2,
        "source": "rank>12",
        "values": {"rank": found["chosen"]["rank"]},
    }
    assert steps_of(lines)[-1]["stop"] == "condition"
    assert lines[-2]["event"] == "step"


def test_stop_holds_nothing_back(place: Place) -> None:
    words = ("run", *SCRIPTED, *SAMPLED)
    text = place.run(*words, "--steps", "40", "Hello").out.decode()
    piece = text.split()[5][:3]
    ended = place.run(*words, "--stop", piece, "Hello")
    at = text.index(piece) + len(piece)
    assert text.startswith(ended.out.decode())
    assert piece in ended.out.decode()
    assert len(ended.out.decode()) < at + 12
    (said,) = [line for line in ended.err.splitlines() if line.startswith("stopped at step")]
    assert said.endswith(f'by --stop "{piece}"')


def test_fail_on_until_is_exit_1_for_until_alone(place: Place) -> None:
    words = ("run", *SCRIPTED, "--steps", "30")
    place.run(*words, "--until", "step=5", "--fail-on-until", "Hello", code=1)
    place.run(*words, "--until", "step=5", "Hello", code=0)
    place.run(*words, "--until", "step=99", "--stop", "a", "--fail-on-until", "Hello", code=0)
    place.run(*words, "--until", "step=99", "--fail-on-until", "Hello", code=0)


def test_a_wrong_condition_is_shown_before_a_daemon_is_started(place: Place) -> None:
    failed = place.run("run", *SCRIPTED, "--until", "entropy>3 adn rank>5", "Hello", code=2)
    lines = failed.err.splitlines()
    assert lines[0].startswith("llm-inspect: 'adn' does not belong here")
    assert lines[-2:] == ["entropy>3 adn rank>5", "          ^"]
    assert len(lines) <= 4
    assert list(place.connections()) == []
    place.run("run", *SCRIPTED, "--fail-on-until", "Hello", code=2)
    assert list(place.connections()) == []


def test_a_text_that_is_no_token_is_exit_2_with_its_pieces(place: Place) -> None:
    failed = place.run("run", *SCRIPTED, "--until", 'token="qx"', "Hello", code=2)
    assert '"q" "x"' in failed.err
    assert "or text~ for text of any length" in failed.err
    watched = place.run("run", *SCRIPTED, "--watch", " of life", "Hello", code=2)
    assert '" of" " life"' in watched.err
    assert "text~" not in watched.err  # which only a condition can ask for


def test_a_time_limit_is_exit_124(place: Place) -> None:
    ended = place.run("run", *SCRIPTED, "--json", "--timeout", "400ms", "Hello", code=124)
    done = ended.lines[-1]
    assert done["reason"] == "timeout"
    assert done["at"] == {"step": done["steps"], "pending": True}
    assert ended.lines[-2]["event"] == "pending"
    assert all(line["stop"] is None for line in steps_of(ended.lines))
    assert f"stopped at step {done['steps']}: the --timeout of 0.4s is over" in ended.err
    listed = {row["session"]: row["status"] for row in place.json("sessions", "--json")}
    assert listed[done["session"]] == "closed"


def test_a_full_context_is_said_and_the_end_of_the_sequence_is_not(place: Place) -> None:
    ended = place.run("run", *SCRIPTED, "--json", "--max-context", "16", "Hello of life")
    done = last(ended.lines)
    assert done["reason"] == "context"
    at = done["at"]["step"]
    assert f"stopped at step {at}: the context of 16 positions is full" in ended.err.splitlines()
    plain = place.run("run", "--max-context", "16", "Hello of life")
    assert plain.err.splitlines() == [f"stopped at step {at}: the context of 16 positions is full"]
    assert plain.out.decode() == done["text"]
    assert "stopped" not in place.run("run", "--steps", "3", "Hello").err


def test_values_of_a_condition_are_not_its_source_again(place: Place) -> None:
    ended = place.run("run", *SCRIPTED, "--until", 'stop("e")', "Hello")
    assert ended.err.splitlines()[-1].endswith('by condition 1: stop("e")')
    ended = place.run("run", "--until", "step=5", "Hello")
    assert ended.err.splitlines()[-1].endswith("by condition 1: step=5 (step 5)")


@pytest.mark.terminal
def test_on_a_terminal_the_last_words_have_a_line_of_their_own(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    for words in (("--until", "step=5"), ("--stop", "e"), ("--max-context", "16")):
        with place.terminal("run", *words, "Hello") as shown:
            picture = shown.finish()
        (said,) = [line for line in picture.splitlines() if "stopped at step" in line]
        assert said.startswith("stopped at step"), picture


def test_watched_tokens_are_in_every_step(place: Place) -> None:
    words = ("run", *SCRIPTED, "--json", "--candidates", "512", "--steps", "4")
    lines = place.json(*words, "--watch", " of", "--watch", " second", "Hello")
    for line in steps_of(lines):
        by_id = {c["id"]: c for c in line["candidates"]}
        assert [row["text"] for row in line["watched"]] == [" of", " second"]
        for row in line["watched"]:
            assert row["prob"] == pytest.approx(by_id[row["id"]]["prob"])
            assert row["logit"] == by_id[row["id"]]["logit"]
            greater = sum(c["logit"] > row["logit"] for c in line["candidates"])
            assert row["rank"] == 1 + greater


def test_prompt_ids_and_messages(place: Place) -> None:
    words = ("run", *SCRIPTED, "--json", "--steps", "3")
    typed = place.json(*words, "Hello of life")
    (prompt,) = [line for line in typed if line["event"] == "prompt"]
    ids = place.cwd / "ids.json"
    ids.write_text(json.dumps([token["id"] for token in prompt["tokens"]]))
    ready = place.json(*words, "--prompt-ids", str(ids))
    (again,) = [line for line in ready if line["event"] == "prompt"]
    assert again["tokens"] == prompt["tokens"]
    assert again["text"] == "Hello of life"
    assert last(ready)["ids"] == last(typed)["ids"]
    messages = place.cwd / "messages.json"
    messages.write_text('[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]')
    talked = place.json(*words, "--messages", str(messages))
    mistyped = place.cwd / "mistyped.json"
    mistyped.write_text('[{"role":"sytem","content":"Be brief"},{"role":"user","content":"Hi"}]')
    refused = place.run(*words, "--messages", str(mistyped), code=2)
    assert refused.lines[-1]["hint"] == "Did you mean system?"
    assert "message 1 has the role 'sytem'" in refused.err
    (prompt,) = [line for line in talked if line["event"] == "prompt"]
    assert prompt["template"] is True
    assert prompt["text"] == "<|user|>Hi<|end|><|assistant|>Yes<|end|><|assistant|>"
    (place.cwd / "far.txt").write_text("1 2 600")
    failed = place.run(*words, "--prompt-ids", str(place.cwd / "far.txt"), code=2)
    assert "600" in failed.err


def test_a_recording_says_what_stopped_it(place: Place) -> None:
    from engine_daemon.export.jsonl import export
    from engine_daemon.recording.reader import Recording

    lines = place.json("run", *SCRIPTED, "--json", "--until", "step=4", "Hello")
    again = list(export(Recording.open(place.recording(last(lines)["session"]))))
    assert again[-1] == last(lines)


@pytest.mark.terminal
def test_a_breakpoint_from_the_screen(place: Place) -> None:
    with place.terminal(*SCRIPTED, "--watch", " of", "Hello") as screen:
        screen.until("step 0 pending")
        screen.until("◎")
        screen.press("b")
        screen.until("BREAKPOINTS")
        screen.press(*"step>=", "enter")
        picture = screen.until("ends too early")
        assert "step>=\n" in "\n".join(line.strip("│ ") for line in picture.splitlines()) + "\n"
        screen.press(*"7", "enter")
        screen.until(lambda picture: "BREAKPOINTS" not in picture)
        screen.press("space")
        screen.until("step 7 pending")
        screen.until("condition 1: step>=7")
        screen.press("space")
        screen.until("step 8 pending")
        screen.press("b")
        screen.until("hit 2×")
        screen.press("escape")
        screen.until(lambda picture: "BREAKPOINTS" not in picture)
        screen.press("q")
        screen.finish()
    (session,) = place.status()["sessions"]
    assert session["place"]["step"] == 8
