"""Ours against transformers' tokenizer, on a small one made here."""

import logging
from pathlib import Path

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.pieces import ProbeText

pytest.importorskip("transformers")

from engine_daemon.worker.tokenizer_check import check_tokenizer

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(WordLevel({"?": 0, "a": 1, "b": 2}, unk_token="?"))
    made.pre_tokenizer = Whitespace()
    place = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(str(place))
    return place


def test_the_same_ids_pass(folder: Path) -> None:
    check_tokenizer(folder, [ProbeText("a b", [1, 2]), ProbeText("b c", [2, 0])])


@pytest.mark.parametrize("ids", [[1, 1], [1], [1, 2, 0]])
def test_other_ids_are_refused(folder: Path, ids: list[int]) -> None:
    with pytest.raises(InspectError) as caught:
        check_tokenizer(folder, [ProbeText("a b", ids)])
    assert "'a b'" in caught.value.message
    assert caught.value.exit_code is Exit.MODEL


def test_nothing_to_compare_with_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_tokenizer(tmp_path, [])
    with caplog.at_level(logging.WARNING):
        check_tokenizer(tmp_path, [ProbeText("a", [1])])
    assert "not compared" in caplog.text
