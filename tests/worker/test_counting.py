"""How far the reading of a GGUF is, told while a library reads it."""

from pathlib import Path

import gguf
import pytest

from engine_daemon.worker import counting
from engine_daemon.worker.counting import counted_header
from tests.worker.checkpoints import save_tiny_gguf

pytestmark = pytest.mark.engine


def test_the_bytes_of_a_header_grow_over_all_readings_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_OFTEN", 10)
    path, seen = save_tiny_gguf(tmp_path / "a.gguf"), []
    plain = gguf.GGUFReader._get_field_parts
    with counted_header(lambda *told: seen.append(told), "read header"):
        first = gguf.GGUFReader(path)
        once = seen[-1][1]
        gguf.GGUFReader(path)
    assert gguf.GGUFReader._get_field_parts is plain
    assert {(stage, total) for stage, _, total in seen} == {("read header", 0)}
    sizes = [done for _, done, _ in seen]
    assert sizes == sorted(sizes)
    assert 0 < once < first.data_offset
    assert once < sizes[-1] < 2 * first.data_offset
    assert len(gguf.GGUFReader(path).fields) == len(first.fields)
