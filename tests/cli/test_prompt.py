"""Where prompts come from, and which ones are refused."""

import io
import sys
from pathlib import Path

import pytest

from engine_daemon.cli.options import Given
from engine_daemon.cli.prompt import read_prompt
from engine_daemon.errors import InspectError

MIB = 1024 * 1024


def stdin(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def complaint(arguments: list[str], given: Given) -> str:
    with pytest.raises(InspectError) as raised:
        read_prompt(arguments, given)
    assert raised.value.exit_code == 2
    return raised.value.message


def test_an_argument() -> None:
    prompt = read_prompt(["Grüße"], Given(no_specials=True))
    assert prompt is not None
    assert (prompt.text, prompt.specials, prompt.template) == ("Grüße".encode(), False, False)


def test_none_at_all() -> None:
    assert read_prompt([], Given()) is None


def test_a_file_is_read_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes(b"a\r\n\tb\n")
    prompt = read_prompt([], Given(prompt_file=str(path), chat=True, system="be brief"))
    assert prompt is not None
    assert (prompt.text, prompt.template, prompt.system) == (b"a\r\n\tb\n", True, b"be brief")


@pytest.mark.parametrize("given", [Given(prompt_file="-"), Given()])
def test_standard_input(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, b"a\r\nb")
    prompt = read_prompt([] if given.prompt_file else ["-"], given)
    assert prompt is not None
    assert prompt.text == b"a\r\nb"


def test_bad_bytes_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, b"ab\xff")
    assert complaint(["-"], Given()) == "standard input is not UTF-8: byte 0xff at 2"


def test_bad_bytes_in_an_argument() -> None:
    assert "not UTF-8" in complaint([b"\xff".decode("utf-8", "surrogateescape")], Given())


def test_empty_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complaint([""], Given()) == "the prompt is empty"
    stdin(monkeypatch, b"")
    assert complaint(["-"], Given()) == "standard input is empty"
    (tmp_path / "e").write_bytes(b"")
    assert "is empty" in complaint([], Given(prompt_file=str(tmp_path / "e")))


def test_too_large_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"a" * 9_100_000)
    assert complaint([], Given(prompt_file=str(path))).endswith("9.1 MB, the limit is 8.4 MB")
    stdin(monkeypatch, b"a" * (8 * MIB + 1))
    assert "the limit is 8.4 MB" in complaint(["-"], Given())
    half = "a" * (5 * MIB)
    assert "the limit is 8.4 MB" in complaint([half], Given(chat=True, system=half))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot read" in complaint([], Given(prompt_file=str(tmp_path)))
    assert "No such file" in complaint([], Given(prompt_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    "given", [Given(chat=True, raw=True), Given(system="x"), Given(prompt_file="f")]
)
def test_combinations_that_make_no_sense(given: Given) -> None:
    complaint(["hi"], given)
