"""Prepared data with every kind of column, in both layouts, with numbered rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.workspace import PreparedData, write_manifest

USERS, ITEMS = 70_000, 50
"""User ids need more than 16 bits, so that every width of stored id occurs."""


def _column(name: str, role: Role, *, dtype: str = "int32", **more: Any) -> Column:
    kind = Kind.CATEGORICAL if "cardinality" in more else Kind.NUMERIC
    return Column(name=name, role=role, kind=kind, dtype=dtype, **more)  # type: ignore[arg-type]


def item_table() -> pa.Table:
    """Genres (the first, the last and some more items have none), a year and tags for each of ITEMS ids."""
    genres = [[] if item in {0, 1, ITEMS - 1} else list(range(3, 3 + item % 5)) for item in range(ITEMS)]
    weights = [[item / 4, item / 2] if item % 2 else [] for item in range(ITEMS)]
    return pa.table({
        "genres": pa.array(genres, pa.list_(pa.int32())),
        "weights": pa.array(weights, pa.list_(pa.float32())),
        "year": pa.array([float(item) for item in range(ITEMS)], pa.float32()),
    })  # fmt: skip


def schema(*, layout: str) -> Schema:
    """The columns of `write_rows`."""
    table = "itemId" if layout == "star" else None
    return Schema(
        columns=(
            _column("userId", Role.USER, cardinality=USERS, vocabulary="userId"),
            _column("itemId", Role.ITEM, cardinality=ITEMS, vocabulary="itemId"),
            _column("genres", Role.FEATURE, cardinality=9, vocabulary="genres", ragged=True, table=table),
            _column("weights", Role.FEATURE, dtype="float32", ragged=True, table=table),
            _column("year", Role.FEATURE, dtype="float32", table=table),
            _column("session", Role.FEATURE, cardinality=300, vocabulary="session", ragged=True),
            _column("price", Role.FEATURE, dtype="float64"),
            _column("count", Role.FEATURE, dtype="int16"),
            _column("label", Role.LABEL, dtype="int8"),
            _column("time", Role.TIMESTAMP, dtype="int64"),
        )
    )


def write_rows(
    folder: Path, *, splits: Mapping[str, int], shards: int = 2, layout: str = "star", group: int = 40
) -> PreparedData:
    """Write splits with numbered rows: row i has the user id i, the price i / 2 and a session of i % 4 ids."""
    data = PreparedData(folder)
    items = item_table()
    for split, rows in splits.items():
        (folder / split).mkdir(parents=True)
        number = np.arange(rows)
        table = pa.table({
            "userId": number.astype(np.int32),
            "itemId": (number * 7 % ITEMS).astype(np.int32),
            "session": pa.array([[i % 300] * (i % 4) for i in range(rows)], pa.list_(pa.int32())),
            "price": number / 2,
            "count": (number % 100 - 50).astype(np.int16),
            "label": (number % 3 == 0).astype(np.int8),
            "time": number,
        })  # fmt: skip
        if layout == "flat":
            for name, column in zip(items.column_names, items.take(table["itemId"]).columns, strict=True):
                table = table.append_column(name, column)
        for shard in range(shards):
            part = table.slice(rows * shard // shards, rows * (shard + 1) // shards - rows * shard // shards)
            pq.write_table(part, folder / split / f"{shard:05d}.parquet", row_group_size=group)
    (folder / "tables").mkdir()
    pq.write_table(items, data.table("itemId"))
    schema(layout=layout).write(folder / "schema.json")
    write_manifest(folder, "PreparedData", {"key": "by-hand", "rows": dict(splits)})
    return data


WriteRows = Callable[..., PreparedData]


@pytest.fixture
def numbered(tmp_path: Path) -> WriteRows:
    """Write prepared data with user ids as row numbers: numbered(rows, shards=…, layout=…, group=rows of a row group)."""

    def write(rows: int, **how: Any) -> PreparedData:
        name = "-".join(str(part) for part in (rows, *how.values()))
        return write_rows(tmp_path / name, splits={"train": rows, "valid": 0}, **how)

    return write


@pytest.fixture(scope="session")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> WriteRows:
    """60,000 rows in small row groups, more than 1 MiB: streamed(layout=…); written once, read-only."""
    written: dict[str, PreparedData] = {}

    def write(layout: str = "star") -> PreparedData:
        if layout not in written:
            folder = tmp_path_factory.mktemp(layout) / "data"
            written[layout] = write_rows(folder, splits={"train": 60_000}, shards=4, layout=layout, group=1_500)
        return written[layout]

    return write


Rows = Callable[[Sequence[Batch]], list[dict[str, Any]]]


@pytest.fixture
def rows_of() -> Rows:
    """Turn batches into one dict of plain python values for each row."""

    def rows(batches: Sequence[Batch]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for batch in batches:
            columns: dict[str, list[Any]] = {}
            for name, feature in {**batch.features, **batch.labels}.items():
                if isinstance(feature, Ragged):
                    ends = feature.offsets.tolist()
                    columns[name] = [feature.values[a:b].tolist() for a, b in pairwise(ends)]
                else:
                    columns[name] = feature.tolist()
            found.extend(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return found

    return rows


@pytest.fixture
def expected_row() -> Callable[[int], dict[str, Any]]:
    """Return the expected row i of `numbered` in a batch."""
    items = item_table().to_pylist()

    def row(number: int) -> dict[str, Any]:
        return {
            "userId": number,
            "itemId": number * 7 % ITEMS,
            **items[number * 7 % ITEMS],
            "session": [number % 300] * (number % 4),
            "price": number / 2,
            "count": number % 100 - 50,
            "label": float(number % 3 == 0),
        }

    return row
