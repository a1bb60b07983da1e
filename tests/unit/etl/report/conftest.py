"""Preparation of a few rows by the real stage, with their report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.etl.report import Facts
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace

Rows = Sequence[tuple[Any, ...]]
SCHEMA = pa.schema([("user", pa.int64()), ("item", pa.int64()), ("label", pa.float64()), ("time", pa.int64())])
TAGS = pa.table({
    "item": pa.array([1, 2, 3], pa.int64()),
    "tags": pa.array([["a", None], ["b"], None], pa.list_(pa.string())),
    "price": pa.array([1.5, None, 2.5], pa.float64()),
})  # fmt: skip
CATEGORIFY = {"op": "Categorify", "columns": ["user", "item"]}

Report = Callable[..., Facts]


def table_of(rows: Rows) -> pa.Table:
    """Return rows of (user, item, label, time) as a table."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PreparedData]:
    """Prepare rows of (user, item, label, time): one table, or one per split."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(TAGS, "tags.parquet")

    def run(
        rows: Rows | Mapping[str, Rows],
        *ops: dict[str, Any],
        split: dict[str, Any] | None = None,
        timestamp: str | None = "time",
        layout: str = "star",
        **features: Any,
    ) -> PreparedData:
        given = rows if isinstance(rows, Mapping) else {"all": rows}
        for name, part in given.items():
            pq.write_table(table_of(part), f"{name}.parquet")
        files = {name: f"{name}.parquet" for name in given}
        config = {
            "dataset": {"name": "files", "interactions": next(iter(files.values())), "tables": {"tags": "tags.parquet"}},
            "split": split or {"method": "files", **files},
            "features": {
                "user": "user", "item": "item", "label": "label", "timestamp": timestamp,
                "ops": list(ops or (CATEGORIFY,)), **features,
            },
            "etl": {"layout": layout, "shard_rows": 5},
        }  # fmt: skip
        return etl(RunConfig.model_validate(config), Workspace(tmp_path / "workspace")).artifact

    return run


@pytest.fixture
def report(prepare: Callable[..., PreparedData]) -> Report:
    """Prepare rows, and return the facts of the report."""

    def run(*args: Any, **kwargs: Any) -> Facts:
        return Facts.read(prepare(*args, **kwargs).facts)

    return run
