"""`engine_daemon.tokens.settings`: the files beside tokenizer.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.tokens.settings import Settings, read_settings


def put(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


def test_a_folder_with_nothing_in_it(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings({}, None, None)


def test_special_tokens_by_role(tmp_path: Path) -> None:
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False, "__type": "AddedToken"},
        "pad_token": None,
        "add_bos_token": True,
        "extra_special_tokens": {"image_token": "<image>"},
        "model_max_length": 10**30,
    }
    put(tmp_path, "tokenizer_config.json", config)
    specials = {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<image>"}
    assert read_settings(tmp_path).specials == specials


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("one", "one"),
        ([{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}], "a"),
        ({"default": "a", "rag": "c"}, "a"),
        ([{"name": "tool_use", "template": "b"}], None),
        (None, None),
        (7, None),
    ],
)
def test_templates_in_the_configuration(tmp_path: Path, template: Any, expected: str) -> None:
    put(tmp_path, "tokenizer_config.json", {"chat_template": template})
    assert read_settings(tmp_path).template == expected


def test_a_template_file_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "tokenizer_config.json", {"chat_template": "old"})
    put(tmp_path, "chat_template.jinja", "{{ 'é' }}\n")
    assert read_settings(tmp_path).template == "{{ 'é' }}\n"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"text_config": {"max_position_embeddings": 32768}}, 32768),
        ({"max_position_embeddings": 1, "text_config": {"max_position_embeddings": 2}}, 1),
        ({"n_positions": 1024, "n_ctx": 512}, 1024),
        ({"max_position_embeddings": None, "text_config": None}, None),
        ({"max_position_embeddings": 0}, None),
        ({"max_position_embeddings": "8192"}, None),
        ({}, None),
    ],
)
def test_context_length(tmp_path: Path, config: Any, expected: int | None) -> None:
    put(tmp_path, "config.json", config)
    assert read_settings(tmp_path).context_length == expected


@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b'{"a": "\xff"}'])
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InspectError) as caught:
        read_settings(tmp_path)
    error = caught.value
    assert error.message.startswith(f"cannot use {tmp_path / name}: ")
    assert (error.code, error.exit_code) == ("bad_tokenizer", Exit.MODEL)
    assert error.hint


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(InspectError, match=r"chat_template\.jinja"):
        read_settings(tmp_path)


def test_ids_that_stand_for_media_are_in_the_models_configuration(tmp_path: Path) -> None:
    config = {"image_token_id": 248_056, "video_token_id": None, "audio_token_index": 7}
    put(tmp_path, "config.json", config)
    assert read_settings(tmp_path).media == {248_056, 7}
