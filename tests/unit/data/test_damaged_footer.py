"""Parquet files whose footer contradicts itself, on which pyarrow may crash: an error names the file and the column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.data.raw_files import open_parquet
from recsys_cli.errors import DataError
from recsys_cli.etl.reading import typed_files as reading
from recsys_cli.stages.tables import read_columns

ROWS = 12_345
NUMBER = b"\xf2\xc0\x01"
"""ROWS as a variable-length integer; in the footer that of the file, of each column chunk, and of the row group."""
FEWER = b"\xf0\xc0\x01"
OF_INT64, OF_DOUBLE, UNKNOWN = (b"\x1c\x15" + code + b"\x19" for code in (b"\x04", b"\x0a", b"\x44"))
"""Start of the description of a column chunk, with its type."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two columns of integers and lists."""
    path = tmp_path / "rows.parquet"
    lists = pa.array([[1], None, []] * (ROWS // 3), pa.list_(pa.int64()))
    pq.write_table(pa.table({"user": range(ROWS), "item": range(ROWS), "genres": lists}), path)
    return path


def damage(path: Path, old: bytes, new: bytes, *, occurrence: int) -> None:
    """Replace bytes of the footer at one of their occurrences, from 0."""
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    parts = content[footer:].split(old)
    changed = old.join(parts[: occurrence + 1]) + new + old.join(parts[occurrence + 1 :])
    path.write_bytes(content[:footer] + changed)


def test_a_sound_file_with_empty_lists_and_null_is_read(path: Path) -> None:
    with open_parquet(str(path)) as file:
        assert file.read().num_rows == ROWS


@pytest.mark.parametrize(
    ("old", "new", "occurrence", "found"),
    [
        (NUMBER, FEWER, 1, "user has 12,344 values of INT64 for 12,345 rows of INT64"),
        (OF_INT64, OF_DOUBLE, 1, "item has 12,345 values of DOUBLE for 12,345 rows of INT64"),
        (OF_INT64, UNKNOWN, 0, "user has 12,345 values of UNKNOWN for 12,345 rows of INT64"),
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(
    path: Path, old: bytes, new: bytes, occurrence: int, found: str
) -> None:
    damage(path, old, new, occurrence=occurrence)
    with pytest.raises(pa.ArrowInvalid, match=f"its footer is damaged: column {found}"):
        open_parquet(str(path))
    with pytest.raises(DataError, match=f"rows.parquet: not a Parquet file: its footer is damaged: column {found}"):
        reading.open_parquet(path).__enter__()
    with pytest.raises(DataError, match=f"rows.parquet: cannot read a table: its footer is damaged: column {found}"):
        read_columns(path, ["user"])
