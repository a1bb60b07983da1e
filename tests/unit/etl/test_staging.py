"""Rows from staging to partitions and files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.staging import ShardAssignment, Staged, _Batch, stage
from recsys_cli.etl.transform import sweep, write_table
from recsys_cli.events import ignore
from recsys_cli.features.split import RandomSplit
from recsys_cli.ops.scratch import PartitionedFile, Span, read

ROWS = 5_000
OPS = [
    {"op": "Categorify", "columns": ["user", "item"]},
    {"op": "LambdaOp", "expression": "item > 3", "output": "label", "dtype": "int8"},
]
COLUMNS = (RawColumn("user", "int32"), RawColumn("item", "int32"), RawColumn("time", "int64"))


@pytest.fixture
def raw(tmp_path: Path) -> RawTable:
    text = "user,item,time\n" + "".join(f"{row % 50},{row},{(row * 7) % 1000}\n" for row in range(ROWS))
    (tmp_path / "r.csv").write_text(text)
    return RawTable("interactions", (tmp_path / "r.csv",), COLUMNS)


def staged(
    raw: RawTable, folder: Path, *, timestamp: str | None = "time", chunk_bytes: int = 1 << 20, **sections
) -> Staged:
    folder.mkdir()
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "r.csv"},
        "features": {"user": "user", "item": "item", "label": "label", "timestamp": timestamp, "ops": OPS},
        "etl": {"shard_rows": 700},
        **sections,
    })  # fmt: skip
    reader = Reader(raw, chunk_bytes=chunk_bytes)
    return stage({"all": reader}, {}, config, estimated_rows=reader.estimated_rows(), folder=folder, emit=ignore)


def items(stage: Staged, split: str) -> list[int]:
    return [
        item
        for shard in range(len(stage.shards[split]))
        for item in stage.read(split, shard).column("item").to_pylist()
    ]


def test_staging_assigns_every_row_once(raw: RawTable, tmp_path: Path) -> None:
    made = staged(raw, tmp_path / "a", split={"method": "random", "valid": 0.2, "test": 0.1})

    assert sorted(items(made, "train") + items(made, "valid") + items(made, "test")) == list(range(ROWS))
    assert sum(made.rows.values()) == ROWS
    assert len(made.shards["train"]) == 8


def test_staging_shuffles_train_and_keeps_the_others_in_order(raw: RawTable, tmp_path: Path) -> None:
    made = staged(raw, tmp_path / "a")

    train, valid = items(made, "train"), items(made, "valid")
    assert valid == sorted(valid)
    inversions = sum(a > b for a, b in itertools.pairwise(train))
    assert inversions == pytest.approx(len(train) / 2, rel=0.05)


def test_staging_is_independent_of_batches(raw: RawTable, tmp_path: Path) -> None:
    whole = staged(raw, tmp_path / "a")
    parts = staged(raw, tmp_path / "b", chunk_bytes=500)

    assert items(whole, "train") == items(parts, "train")
    assert items(whole, "valid") == items(parts, "valid")


def test_staging_by_time_puts_the_latest_into_test(raw: RawTable, tmp_path: Path) -> None:
    made = staged(raw, tmp_path / "a", split={"method": "temporal", "valid": 0.1, "test": 0.1})

    def times(split: str) -> list[int]:
        return [(item * 7) % 1000 for item in items(made, split)]

    assert max(times("train")) <= min(times("valid"))
    assert max(times("valid")) <= min(times("test"))
    assert made.rows == {"train": 4000, "valid": 500, "test": 500}


def test_staging_leaves_each_users_last_out(raw: RawTable, tmp_path: Path) -> None:
    made = staged(raw, tmp_path / "a", split={"method": "leave-last-out"})

    assert made.rows == {"train": ROWS - 100, "valid": 50, "test": 50}
    assert {item % 50 for item in items(made, "test")} == set(range(50))


@pytest.mark.parametrize("num_shards", [1, 250, 70_000])
def test_splits_are_independent_of_the_number_of_shards(num_shards: int, tmp_path: Path) -> None:
    rows = pa.table({"row": np.arange(100)})
    codes = np.repeat(np.array([0, 1, 2], dtype=np.uint8), [50, 30, 20])
    file = ShardAssignment(tmp_path, rows.schema, num_shards, 7, RandomSplit())(_Batch(0, 0, rows, codes))
    assert file.starts[num_shards:].tolist() == [50, 80, 100]


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

    assert rows.to_pydict() == {"text": ["b", "12345678", "b"], "number": [0, 2, 5], "other": ["w", "y", "u"]}
    assert all(column.num_chunks == 1 for column in rows.columns)


def test_subset_of_columns_is_read(tmp_path: Path) -> None:
    first, second = files(tmp_path)

    rows = read([Span(first, 0, 1, 2), Span(second, 2, 0, 1)], SHORT.schema, ["text"])

    assert rows.to_pydict() == {"text": ["", None]}


def test_no_rows_have_the_types_of_the_columns() -> None:
    assert read([], SHORT.schema, NAMES).equals(SHORT.slice(0, 0))


TABLE = pa.table({"a": [1, 2, 3]})


def test_interrupted_write_leaves_no_final_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(table: pa.Table, path: Path, **options: Any) -> None:
        path.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    folder = tmp_path / "train"
    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", dies)
        with pytest.raises(KeyboardInterrupt):
            write_table(TABLE, folder / "00000.parquet")
    assert len(list(folder.iterdir())) == 1
    assert list(folder.glob("*.parquet")) == []

    write_table(TABLE, folder / "00000.parquet")
    sweep(folder)
    assert [path.name for path in folder.iterdir()] == ["00000.parquet"]
    assert pq.read_table(folder / "00000.parquet") == TABLE


def test_shard_written_twice_exists_once(tmp_path: Path) -> None:
    for _ in range(2):
        write_table(TABLE, tmp_path / "00000.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["00000.parquet"]


def test_sweep_of_a_missing_folder(tmp_path: Path) -> None:
    sweep(tmp_path / "test")
    assert not list(tmp_path.iterdir())
