"""Ops that choose rows, from files to prepared data, on every engine: rows are chosen before engines see them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import Message, ignore
from recsys_cli.ops import buckets
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace
from tests.engines import every_engine

ENCODE = {"op": "Categorify", "columns": ["user", "item"]}
HIGH = {"op": "Filter", "expression": "rating >= 3"}


def write(folder: Path, rows: int = 400, files: int = 3) -> str:
    """Write interactions of 20 users and 30 items, dealt to several files so that every user spans all of them."""
    rng = np.random.default_rng(3)
    table = pa.table({
        "user": [f"u{user}" for user in rng.integers(0, 20, rows)],
        "item": rng.integers(0, 30, rows),
        "rating": rng.integers(1, 6, rows).astype(float),
        "time": rng.integers(0, 50, rows),
    })  # fmt: skip
    size = -(-rows // files)
    for part in range(files):
        pq.write_table(table.slice(part * size, size), folder / f"part-{part}.parquet", row_group_size=37)
    return str(folder / "part-*.parquet")


def raw(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]


def prepare(
    folder: Path, ops: Sequence[dict[str, Any]], *, engine: str = "polars", emit: Any = ignore, **sections: Any
) -> PreparedData:
    features = {"user": "user", "item": "item", "label": "rating", "timestamp": "time", **sections.pop("features", {})}
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": str(folder / "part-*.parquet")},
        "features": {**features, "ops": list(ops)},
        "split": {"method": "random", "valid": 0.25},
        "etl": {"engine": engine, "shard_rows": 64},
        **sections,
    })  # fmt: skip
    workspace = Workspace(folder / "workspace")
    download(config.dataset, workspace)
    return etl(config, workspace, emit=emit, force=True).artifact


def decoded(data: PreparedData, split: str, *names: str, codes: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    """Return rows of a split; columns of ids as the values of their vocabulary."""
    columns = []
    tables = [pq.read_table(path) for path in sorted((data.folder / split).glob("*.parquet"))]
    for name in names:
        values = [value for table in tables for value in table.column(name).to_pylist()]
        path = data.folder / "vocab" / f"{name}.parquet"
        if path.exists():
            known = [None, None, "unseen", *pq.read_table(path).column("value").to_pylist()]
            values = [[known[c] for c in v] if isinstance(v, list) else known[v] for v in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def test_a_filter_does_not_move_a_row_to_another_split(tmp_path: Path) -> None:
    write(tmp_path)
    all_of_them = prepare(tmp_path, [ENCODE])
    rows = {split: decoded(all_of_them, split, "time", "rating") for split in ("train", "valid")}
    high = prepare(tmp_path, [HIGH, ENCODE])
    for split, before in rows.items():
        assert sorted(decoded(high, split, "time", "rating")) == sorted(row for row in before if row[1] >= 3)
    assert sum(high.manifest["rows"].values()) == sum(row["rating"] >= 3 for row in raw(tmp_path))


def test_what_ops_did_is_told_and_kept(tmp_path: Path) -> None:
    write(tmp_path)
    events: list[Any] = []
    ops = [HIGH, {"op": "KCore", "columns": {"user": 5, "item": 5}}, ENCODE]
    data = prepare(tmp_path, ops, emit=events.append)
    high = sum(row["rating"] >= 3 for row in raw(tmp_path))
    first, second = data.manifest["chosen"]["all"]
    assert first == {"index": 0, "name": "Filter", "title": "Filter 'rating >= 3'", "rows_in": 400, "rows_out": high}
    assert (second["rows_in"], second["rows_out"]) == (high, sum(data.manifest["rows"].values()))
    assert Message(f"Filter 'rating >= 3': 400 rows in, {high} rows out") in events
    assert not list((tmp_path / "workspace").rglob("rows.arrow"))


@pytest.mark.parametrize("split", ["temporal", "leave-last-out", "user"])
def test_other_splits_look_at_the_rows_that_are_left(split: str, tmp_path: Path) -> None:
    write(tmp_path)
    once = {"op": "Deduplicate", "columns": ["user", "item"], "keep": "last", "order_by": "time"}
    data = prepare(tmp_path, [HIGH, once, ENCODE], split={"method": split})
    kept: dict[tuple[str, int], dict[str, Any]] = {}
    for row in sorted((row for row in raw(tmp_path) if row["rating"] >= 3), key=lambda row: row["time"]):
        kept[row["user"], row["item"]] = row
    rows = {name: decoded(data, name, "user", "item", "time") for name in ("train", "valid", "test")}
    assert sum(map(len, rows.values())) == len(kept)
    assert {(user, item, time) for user, item, time in rows["train"]} <= {
        (*key, row["time"]) for key, row in kept.items()
    }
    if split == "temporal":
        assert max(time for *_, time in rows["train"]) <= min(time for *_, time in rows["valid"])
    if split == "user":
        assert not {user for user, *_ in rows["train"]} & {user for user, *_ in rows["valid"]}
    if split == "leave-last-out":
        last = {user: max(row["time"] for (who, _), row in kept.items() if who == user) for user, *_ in rows["test"]}
        assert {user: time for user, _, time in rows["test"]} == last


SESSIONS = [
    HIGH,
    {"op": "DifferenceLag", "columns": "time", "by": "user", "order_by": "time"},
    {
        "op": "Groupby", "by": "user", "order_by": "time",
        "aggs": {
            "item": ["list", "last", "count"], "time": "last", "rating": ["last", "mean"], "time_difference_lag_1": "max",
        },
    },
    {"op": "LambdaOp", "expression": "item_count * 2", "output": "twice", "dtype": "int32"},
    {"op": "Categorify", "columns": ["user", "item_list", "item_last"]},
    {"op": "ListSlice", "columns": ["item_list"], "start": -4},
]  # fmt: skip


@every_engine
@pytest.mark.parametrize("layout", ["star", "flat"])
def test_sessions_of_users_who_span_files(
    name: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "bucket_bytes", lambda memory: 1000)
    write(tmp_path)
    features = {"item": "item_last", "label": "rating_last", "timestamp": "time_last"}
    options = {"split": {"method": "temporal", "valid": 0.25, "test": 0}, "features": features}
    data = prepare(tmp_path, SESSIONS, engine=name, **options, etl={"engine": name, "shard_rows": 6, "layout": layout})
    users: dict[str, list[dict[str, Any]]] = {}
    for row in sorted((row for row in raw(tmp_path) if row["rating"] >= 3), key=lambda row: row["time"]):
        users.setdefault(row["user"], []).append(row)
    names = ("user", "item_list", "item_last", "item_count", "time_last", "rating_mean", "time_difference_lag_1_max")
    train, valid = (decoded(data, split, *names) for split in ("train", "valid"))
    assert (len(train), len(valid)) == (15, 5)
    assert max(row[4] for row in train) <= min(row[4] for row in valid)
    known = {row["item"] for user, *_ in train for row in users[user]}
    for user, items, last, count, time, mean, gap in train:
        rows = users[user]
        assert items == [row["item"] for row in rows[-4:]]
        assert (last, count, time) == (rows[-1]["item"], len(rows), rows[-1]["time"])
        assert mean == pytest.approx(sum(row["rating"] for row in rows) / len(rows), rel=1e-6)
        assert gap == max(after["time"] - before["time"] for before, after in itertools.pairwise(rows))
    seen = {user for user, *_ in train}
    late = [
        [row["item"] if row["item"] in known else "unseen" for row in rows[-4:]]
        for user, rows in users.items()
        if user not in seen
    ]
    assert sorted(map(str, late)) == sorted(str(row[1]) for row in valid)


def test_each_given_set_of_files_is_chosen_on_its_own(tmp_path: Path) -> None:
    write(tmp_path)
    paths = {split: str(tmp_path / f"part-{part}.parquet") for part, split in enumerate(["train", "valid"])}
    once = {"op": "Deduplicate", "columns": "user"}
    core = {"op": "KCore", "columns": {"item": 5}}
    data = prepare(tmp_path, [core, once, ENCODE], split={"method": "files", **paths})
    rows = raw(tmp_path)
    held_out = rows[134:268]
    assert data.manifest["rows"]["valid"] == len({row["user"] for row in held_out})
    items = [row["item"] for row in rows[:134]]
    core_users = {row["user"] for row in rows[:134] if items.count(row["item"]) >= 5}
    assert data.manifest["rows"]["train"] == len(core_users)
    assert [count["name"] for count in data.manifest["chosen"]["valid"]] == ["Deduplicate"]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"op": "Filter", "expression": "raiting > 3"}, r"no column 'raiting' in the interactions \(did you mean rating"),
        ({"op": "Filter", "expression": "user > 3"}, r"Filter 'user > 3': '>' with text"),
        ({"op": "DifferenceLag", "columns": "user", "by": "item"}, r"DifferenceLag.*'user' holds string; numbers are needed"),
        ({"op": "Groupby", "by": "user", "aggs": {"user": "mean"}}, r"Groupby: 'user' holds string; numbers are needed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_any_work(op: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match=message):
        prepare(tmp_path, [op, ENCODE])
    with pytest.raises(ConfigError, match="rows are selected before any op is fitted or joined"):
        prepare(tmp_path, [ENCODE, HIGH])


def test_nothing_left_names_the_op(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match="Filter 'rating > 5' removes all 400 rows"):
        prepare(tmp_path, [{"op": "Filter", "expression": "rating > 5"}, ENCODE])
