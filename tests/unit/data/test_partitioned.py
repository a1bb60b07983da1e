"""Hive folders and `since`, in text and Parquet."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.data import open_source
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Reader

DAYS = {"2024-01-01": [(1, 10, 100), (2, 20, 150)], "2024-01-02": [(3, 10, 200)], "2024-02-01": [(1, 30, 300)]}


@pytest.fixture(params=["csv", "parquet"])
def plays(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three days, also with a null and an encoded value."""
    for day, rows in DAYS.items():
        folder = tmp_path / "plays" / f"dt={day}" / "shop=a%2Fb"
        folder.mkdir(parents=True)
        user, item, time = (list(column) for column in zip(*rows, strict=True))
        table = pa.table({"user": user, "item": item, "time": time})
        if request.param == "parquet":
            pq.write_table(table, folder / "part.parquet")
        else:
            lines = [",".join(map(str, row)) for row in rows]
            (folder / "part.csv").write_text("\n".join(["user,item,time", *lines]) + "\n")
    return tmp_path / "plays"


def read(columns: list[str] | None = None, **options: object) -> pa.Table:
    table = open_source("files", {"interactions": options}).tables(Path())[0]
    return Reader(table, columns=columns).read()


def test_partition_columns_become_columns(plays: Path) -> None:
    rows = read(files=str(plays))
    assert rows.column_names == ["user", "item", "time", "dt", "shop"]
    assert rows["dt"].to_pylist() == [datetime(2024, 1, 1)] * 2 + [datetime(2024, 1, 2), datetime(2024, 2, 1)]
    assert rows["shop"].to_pylist() == ["a/b"] * 4
    assert read(["dt", "user"], files=str(plays)).column_names == ["dt", "user"]
    assert read(["dt"], files=str(plays)).num_rows == 4
    assert read(["dt"], files=str(plays), types={"dt": "string"})["dt"].to_pylist()[-1] == "2024-02-01"


@pytest.mark.parametrize(
    ("since", "users"),
    [
        ({"dt": "2024-01-02"}, [3, 1]),
        ({"dt": "30d"}, [3, 1]),
        ({"user": 2}, [2, 3]),
        ({"time": "100s"}, [3, 1]),
        ({"time": "1970-01-01T00:03:20Z"}, [3, 1]),
        ({"dt": "2024-01-02", "time": 300}, [1]),
    ],
)
def test_rows_since_a_moment(plays: Path, since: dict[str, object], users: list[int]) -> None:
    for columns in (["user"], None):
        found = read(columns, files=str(plays), since=since, times={"time": "s"})
        assert found["user"].to_pylist() == users
    assert found.column_names == ["user", "item", "time", "dt", "shop"]


def test_files_of_earlier_partitions_are_not_read(plays: Path) -> None:
    options = {"interactions": {"files": str(plays), "since": {"dt": "2024-02-01"}}}
    source = open_source("files", options)
    assert len(source.tables(Path())[0].files) == 1
    before = source.identity()
    next(plays.glob("dt=2024-01-01/*/*")).unlink()
    assert open_source("files", options).identity() == before


def test_mistakes_of_since_are_named(plays: Path) -> None:
    with pytest.raises(ConfigError, match="'soon' is neither a number, a date or time"):
        read(files=str(plays), since={"time": "soon"})
    with pytest.raises(ConfigError, match=r"since: \{time: 30d\} does not fit column time of type int64"):
        read(files=str(plays), since={"time": "30d"})
    with pytest.raises(DataError, match=r"has no rows since \{time: 2025-01-01\}"):
        read(files=str(plays), since={"time": "2025-01-01"}, times={"time": "s"})
    with pytest.raises(DataError, match=r"has no rows since \{dt: 2025-01-01\}"):
        read(files=str(plays), since={"dt": "2025-01-01"})
    with pytest.raises(DataError, match="no column moment"):
        read(files=str(plays), since={"moment": 3})


def test_nulls_and_numbers_in_names(tmp_path: Path) -> None:
    for name in ("7", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"k={name}").mkdir()
        (tmp_path / f"k={name}" / "a.csv").write_text("user,item\n1,2\n")
    assert read(files=str(tmp_path))["k"].to_pylist() == [7, None]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("has_own", [True, False])
def test_folders_win_over_columns_of_files(tmp_path: Path, kind: str, has_own: bool) -> None:
    path = tmp_path / "plays" / "rating=7" / f"a.{kind}"
    path.parent.mkdir(parents=True)
    rows = pa.table({"user": [1, 2], **({"rating": ["x", None]} if has_own else {})})
    if kind == "parquet":
        pq.write_table(rows, path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    else:
        pyarrow.csv.write_csv(rows, path)
    assert read(files=str(tmp_path / "plays")).to_pydict() == {"user": [1, 2], "rating": [7, 7]}
    assert read(["rating"], files=str(tmp_path / "plays"))["rating"].to_pylist() == [7, 7]
