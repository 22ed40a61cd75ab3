"""`engine_daemon.tokens.loading`: a folder → a tokenizer, or one sentence that says why not."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.tokens.hf import HfTokenizer
from engine_daemon.tokens.loading import load_tokenizer
from tests.tokens import made


def refusal(folder: Path) -> InspectError:
    with pytest.raises(InspectError) as caught:
        load_tokenizer(str(folder))
    error = caught.value
    assert error.exit_code == Exit.MODEL
    assert error.hint
    assert "\n" not in error.message + error.hint
    assert len(error.message) < 400
    return error


def test_no_folder_is_the_built_in_one() -> None:
    assert isinstance(load_tokenizer(""), BuiltinTokenizer)


def test_a_folder(tmp_path: Path) -> None:
    raw = made.raw("byte level")
    (tmp_path / "tokenizer.json").write_bytes(raw)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 77}')
    tokenizer = load_tokenizer(str(tmp_path))
    assert isinstance(tokenizer, HfTokenizer)
    assert tokenizer.tokenizer_id == hashlib.sha256(raw).hexdigest()
    assert tokenizer.context_length == 77


def test_truncation_and_padding_of_the_file_do_not_apply(tmp_path: Path) -> None:
    library = made.byte_level()
    library.enable_truncation(3)
    library.enable_padding(length=10)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(str(tmp_path))
    (probe, *_) = tokenizer.table().probe
    assert probe.ids == made.byte_level().encode(probe.text).ids


def test_named_specials_are_special_whatever_tokenizer_json_says(tmp_path: Path) -> None:
    raw = json.loads(made.raw("byte level"))
    raw["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    config = {"bos_token": "<s>", "pad_token": "<nowhere>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    table = load_tokenizer(str(tmp_path)).table()
    vocabulary = raw["model"]["vocab"]
    assert table.is_special(vocabulary["<s>"])
    assert not table.is_special(vocabulary["</s>"])
    assert b"<nowhere>" not in table.pieces


def test_no_tokenizer_json(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert error.code == "no_tokenizer"
    assert error.message == f"{tmp_path} has no tokenizer.json"
    assert refusal(tmp_path / "missing").code == "no_tokenizer"


def test_a_directory_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    assert refusal(tmp_path).code == "bad_tokenizer"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"model": {}}',
        b'{"model": {"type": "BPE"}}',
        b"\xff\xfe",
        b"null",
    ],
)
def test_broken_tokenizer_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    error = refusal(tmp_path)
    assert error.code == "bad_tokenizer"
    assert str(tmp_path / "tokenizer.json") in error.message


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.99])
def test_a_torn_tokenizer_json(tmp_path: Path, cut: float) -> None:
    raw = made.raw("Llama, prepend")
    (tmp_path / "tokenizer.json").write_bytes(raw[: int(len(raw) * cut)])
    assert refusal(tmp_path).code == "bad_tokenizer"


def test_without_the_engine_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_bytes(made.raw("byte level"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for name in ("reader", "hf"):
        monkeypatch.delitem(sys.modules, f"engine_daemon.tokens.{name}")
    assert refusal(tmp_path).code == "no_engine_packages"


def test_the_built_in_one_needs_no_engine_packages() -> None:
    program = (
        "import sys; from engine_daemon.tokens.service import Service; "
        "from engine_daemon.tokens.loading import load_tokenizer; load_tokenizer(''); "
        "print({'torch', 'transformers', 'tokenizers', 'jinja2', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
