"""Partitions return their rows, for short and long strings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.partitions import PartitionedFile, Span, read

SHORT = pa.table({"text": ["b", None, "12345678", ""], "number": [0, 1, 2, 3], "other": ["w", "x", "y", "z"]})
LONG = pa.table({"text": ["a long text", "b", None], "number": [4, 5, 6], "other": ["t", "u", "v"]})
NAMES = SHORT.column_names


def files(folder: Path) -> tuple[PartitionedFile, PartitionedFile]:
    first = PartitionedFile.write(folder / "0.arrow", SHORT, np.array([1, 0, 1, 0]), 3)
    second = PartitionedFile.write(folder / "1.arrow", LONG, np.array([1, 1, 2]), 3)
    return first, second


def test_rows_are_written_by_partition_in_order(tmp_path: Path) -> None:
    first, _ = files(tmp_path)

    assert first.starts.tolist() == [0, 2, 4, 4]
    assert [table.to_pydict() for table in first.tables(SHORT.schema, ["number", "text"])] == [
        {"number": [1, 3], "text": [None, ""]},
        {"number": [0, 2], "text": ["b", "12345678"]},
        {"number": [], "text": []},
    ]


def test_rows_of_several_files_are_read_into_contiguous_memory(tmp_path: Path) -> None:
    first, second = files(tmp_path)

    rows = read([Span(first, 1, 0, 2), Span(second, 1, 1, 2)], SHORT.schema, NAMES)

    assert rows.to_pydict() == {
        "text": ["b", "12345678", "b"],
        "number": [0, 2, 5],
        "other": ["w", "y", "u"],
    }
    assert all(column.num_chunks == 1 for column in rows.columns)


def test_subset_of_columns_is_read(tmp_path: Path) -> None:
    first, second = files(tmp_path)

    rows = read([Span(first, 0, 1, 2), Span(second, 2, 0, 1)], SHORT.schema, ["text"])

    assert rows.to_pydict() == {"text": ["", None]}


def test_no_rows_have_the_types_of_the_columns() -> None:
    assert read([], SHORT.schema, NAMES).equals(SHORT.slice(0, 0))
