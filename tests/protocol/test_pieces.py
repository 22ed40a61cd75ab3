"""The table id → bytes as a file."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_daemon.protocol.pieces import PieceTable, ProbeText

tokens = st.lists(st.tuples(st.binary(max_size=12), st.booleans()), max_size=40)


@given(tokens)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_written_tables_are_read_back(tmp_path: Path, rows: list[tuple[bytes, bool]]) -> None:
    path = tmp_path / "pieces.bin"
    probe = [ProbeText("Grüße ☃", [1, 2, 3])]
    PieceTable("id", [p for p, _ in rows], [s for _, s in rows], probe).write(path)
    table = PieceTable.read(path)
    assert table.tokenizer_id == "id"
    assert table.probe == probe
    assert list(zip(table.pieces, table.special, strict=True)) == rows


def test_ids_beyond_the_tokenizer_name_themselves_and_add_nothing() -> None:
    table = PieceTable("id", [b"a"], [False])
    assert (table.piece(0), table.is_special(0)) == (b"a", False)
    assert (table.piece(7), table.is_special(7)) == (b"<7>", True)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pieces.bin"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ValueError, match="no piece table"):
        PieceTable.read(path)
