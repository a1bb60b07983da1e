"""Staging: every row once, in an order by seed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.staging import ShardAssignment, Staged, _Batch, stage
from recsys_cli.events import ignore
from recsys_cli.features.split import RandomSplit

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
