"""Sampled negatives: no interaction of the user, the configured number, independent of the batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.etl.reading import reader as inputs
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace

USERS, ITEMS, ROWS = 40, 25, 300


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Interactions: user 0 has all items, user 1 all but one; item 0 is much more popular than the others."""
    rng = np.random.default_rng(3)
    user = rng.integers(2, USERS, ROWS)
    item = np.where(rng.random(ROWS) < 0.2, 0, rng.integers(0, ITEMS, ROWS))
    user = np.concatenate([user, np.zeros(ITEMS, int), np.ones(ITEMS - 1, int)])
    item = np.concatenate([item, np.arange(ITEMS), np.arange(ITEMS - 1)])
    order = rng.permutation(len(user))
    lines = [f"{user[row]},i{item[row]},{row}\n" for row in order]
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,time\n" + "".join(lines) + ",i1,1\n5,,2\n")
    return path


def prepared(path: Path, folder: Path, *, engine: str = "polars", split: dict | None = None, **options) -> PreparedData:
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": str(path)},
        "split": split or {"method": "random", "valid": 0.1, "test": 0.2},
        "features": {
            "user": "user", "item": "item", "label": "label", "timestamp": "time",
            "ops": [
                {"op": "NegativeSampling", "user": "user", "item": "item", "context": ["time"], "num_negatives": 3, **options},
                {"op": "LambdaOp", "expression": "sampled == 0", "output": "label", "dtype": "int8"},
                {"op": "Categorify", "columns": ["user", "item"]},
            ],
        },
        "etl": {"shard_rows": 200, "engine": engine},
    })  # fmt: skip
    workspace = Workspace(folder)
    download(config.dataset, workspace)
    return etl(config, workspace).artifact


def rows(data: PreparedData, split: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in data.shards(split)])


def pairs(table: pa.Table, *, sampled: int) -> list[tuple[int, int]]:
    kept = table.filter(pa.array(table["sampled"].to_numpy() == sampled))
    return list(zip(kept["user"].to_pylist(), kept["item"].to_pylist(), strict=True))


def test_negatives_avoid_interactions_of_their_own_and_earlier_splits(ratings: Path, tmp_path: Path) -> None:
    data = prepared(ratings, tmp_path / "w")
    splits = {split: rows(data, split) for split in ("train", "valid", "test")}
    met: set[tuple[int, int]] = set()

    for table in splits.values():
        met |= set(pairs(table, sampled=0))
        drawn = pairs(table, sampled=1)
        assert not met & set(drawn)
        assert {item for _, item in drawn} <= set(range(FIRST, FIRST + ITEMS))
        assert table["label"].to_pylist() == [1 - sampled for sampled in table["sampled"].to_pylist()]
    assert set(pairs(splits["train"], sampled=1)) & set(pairs(splits["test"], sampled=0)), (
        "held-out pairs are drawn too"
    )


def test_every_interaction_gets_its_negatives_if_unseen_items_remain(ratings: Path, tmp_path: Path) -> None:
    data = prepared(ratings, tmp_path / "w")
    table = rows(data, "test")
    users = pq.read_table(data.vocabulary("user"))["value"].to_pylist()
    everything = FIRST + users.index(0)
    times = {0: [], 1: []}
    for user, item, time, sampled in zip(
        *(table[c].to_pylist() for c in ("user", "item", "time", "sampled")), strict=True
    ):
        if user not in {1, everything} and item != 1:
            times[sampled].append(time)

    assert not [user for user, _ in pairs(table, sampled=1) if user in {1, everything}]
    assert sorted(times[1]) == sorted(times[0] * 3), "each drawn row has the time of its interaction"


def test_user_with_one_unseen_item_gets_that_item(ratings: Path, tmp_path: Path) -> None:
    data = prepared(ratings, tmp_path / "w")
    users = pq.read_table(data.vocabulary("user"))["value"].to_pylist()
    items = pq.read_table(data.vocabulary("item"))["value"].to_pylist()

    drawn = {item for user, item in pairs(rows(data, "test"), sampled=1) if user == FIRST + users.index(1)}

    assert drawn == {FIRST + items.index(f"i{ITEMS - 1}")}


def test_counts_are_those_of_the_interactions(ratings: Path, tmp_path: Path) -> None:
    data = prepared(ratings, tmp_path / "w")
    met = [item for _, item in pairs(rows(data, "train"), sampled=0) if item >= FIRST]

    counts = pq.read_table(data.vocabulary("item"))["count"].to_pylist()

    assert counts == np.bincount(met)[FIRST:].tolist()
    assert data.schema.only(Role.SAMPLED).name == "sampled"
    assert "sampled" not in [column.name for column in data.schema.features]


def test_popular_items_are_sampled_more_often(ratings: Path, tmp_path: Path) -> None:
    uniform = pairs(rows(prepared(ratings, tmp_path / "a"), "train"), sampled=1)
    popular = pairs(rows(prepared(ratings, tmp_path / "b", distribution="popularity"), "train"), sampled=1)

    def share(drawn: list[tuple[int, int]]) -> float:
        return sum(item == FIRST for _, item in drawn) / len(drawn)

    assert share(popular) > 2 * share(uniform) > 0


def test_negatives_depend_only_on_seed_and_rows(ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(prepared(ratings, tmp_path / "a"), "train")
    assert rows(prepared(ratings, tmp_path / "b", seed=1), "train") != whole
    monkeypatch.setattr(inputs, "chunk_bytes", lambda *_: 300)

    assert rows(prepared(ratings, tmp_path / "c"), "train") == whole


def test_only_configured_splits_get_negatives(ratings: Path, tmp_path: Path) -> None:
    data = prepared(ratings, tmp_path / "w", splits=["train"])
    assert pairs(rows(data, "train"), sampled=1)
    assert not pairs(rows(data, "valid"), sampled=1)


def test_rankings_exclude_sampled_negatives(ratings: Path, tmp_path: Path) -> None:
    data = prepared(ratings, tmp_path / "w")
    read = read_interactions(data, "valid")
    met = read.observed()
    assert len(met) == len(pairs(rows(data, "valid"), sampled=0)) < len(read)
    assert set(met.labels.tolist()) == {1.0}


def test_second_negative_sampling_is_refused(ratings: Path, tmp_path: Path) -> None:
    op = {"op": "NegativeSampling", "user": "user", "item": "item"}
    with pytest.raises(ValueError, match="NegativeSampling is repeated"):
        RunConfig.model_validate({
            "dataset": {"name": "files", "interactions": str(ratings)},
            "features": {
                "user": "user", "item": "item", "label": "time",
                "ops": [op, op | {"output": "again"}, {"op": "Categorify", "columns": ["user", "item"]}],
            },
        })  # fmt: skip


def test_negative_sampling_after_a_fitted_op_is_refused(ratings: Path, tmp_path: Path) -> None:
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": str(ratings)},
        "features": {
            "user": "user", "item": "item", "label": "time",
            "ops": [
                {"op": "Categorify", "columns": ["user", "item"]},
                {"op": "NegativeSampling", "user": "user", "item": "item"},
            ],
        },
    })  # fmt: skip
    workspace = Workspace(tmp_path / "w")
    download(config.dataset, workspace)
    with pytest.raises(ConfigError, match="Categorify comes before NegativeSampling"):
        etl(config, workspace)
