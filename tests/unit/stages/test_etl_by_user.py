"""Users without an id stay distinct: cold-start users, and users outside of the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.evaluation.fingerprint import value_hashes
from recsys_cli.features.columns import USER_HASH
from recsys_cli.features.hashing import hash_values
from recsys_cli.features.schema import UNSEEN
from recsys_cli.loader.interactions import read_interactions, read_user_hashes
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace
from tests.rated import FEATURES

USERS = [f"somebody number {number}" if number % 2 else f"u{number}" for number in range(60)]


def _config(**split: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "ratings.csv"}, "features": FEATURES, "split": split,
    })  # fmt: skip


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], float]:
    """Ratings of 60 users, each of 5 of 20 items; by user and item."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    found = {(user, int(item)): float(rng.integers(1, 6)) for user in USERS for item in rng.permutation(20)[:5]}
    lines = [f"{user},{item},{rating}" for (user, item), rating in found.items()]
    Path("ratings.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    return found


def test_held_out_rows_of_a_split_by_user_have_a_hash_of_their_user(raw, workspace: Workspace) -> None:
    data = etl(_config(method="user", valid=0.2, test=0.2), workspace).artifact

    of = dict(zip(hash_values(pa.array(USERS)).tolist(), USERS, strict=True))
    movies = pq.read_table(data.vocabulary("movieId"))["value"].to_pylist()
    for split in ("valid", "test"):
        rows, hashes = read_interactions(data, split), read_user_hashes(data, split)
        assert hashes is not None
        assert set(rows.user_idx.tolist()) == {UNSEEN}
        users = [of[number] for number in hashes.tolist()]
        assert len(set(users)) == len(users) / 5 > 3
        for user, item, label in zip(users, rows.item_idx.tolist(), rows.labels.tolist(), strict=True):
            assert (raw[user, movies[item - 3]] > 3) == label
    assert USER_HASH not in pq.read_schema(data.shards("train")[0]).names
    assert USER_HASH not in data.schema.names


def test_users_whom_train_does_not_have_are_told_apart_after_any_split(raw, workspace: Workspace) -> None:
    Path("train.csv").write_text("userId,movieId,rating\nann,m1,5\nbob,m2,1\n")
    Path("valid.csv").write_text("userId,movieId,rating\nann,m2,5\neve,m1,1\ndan,m2,4\neve,m2,5\n,m1,5\n")
    Path("test.csv").write_text("userId,movieId,rating\neve,m9,5\nann,m2,1\n")
    config = _config(method="files", train="train.csv", valid="valid.csv", test="test.csv")

    data = etl(config, workspace).artifact

    ann, bob, dan, eve = hash_values(pa.array(["ann", "bob", "dan", "eve"])).tolist()
    for split, wanted in {"valid": [None, eve, dan, eve, None], "test": [eve, None]}.items():
        kept = pa.concat_tables([pq.read_table(path, columns=[USER_HASH]) for path in data.shards(split)])
        assert kept[USER_HASH].to_pylist() == wanted
        assert read_user_hashes(data, split).tolist() == [value or 0 for value in wanted]
    assert read_user_hashes(data, "train") is None
    assert USER_HASH not in data.schema.names
    users = data.schema["userId"]
    assert value_hashes(data, users)[3:].tolist() == [ann, bob]  # a user has one hash, with an id or without


@pytest.mark.parametrize("options", [{"freq_threshold": 2}, {"freq_threshold": 2, "num_buckets": 3}, {"max_size": 4}])
def test_users_of_train_whom_the_vocabulary_leaves_out_are_told_apart(
    raw, workspace: Workspace, options: dict[str, int]
) -> None:
    Path("train.csv").write_text("userId,movieId,rating\nann,m1,5\nann,m2,1\nbob,m3,1\neve,m4,1\n")
    Path("valid.csv").write_text("userId,movieId,rating\nbob,m1,5\n")
    ops = [
        {"op": "Categorify", "columns": ["userId"], **options},
        {"op": "Categorify", "columns": ["movieId"]},
        *FEATURES["ops"][1:],
    ]
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "ratings.csv"}, "features": {**FEATURES, "ops": ops},
        "split": {"method": "files", "train": "train.csv", "valid": "valid.csv"},
    })  # fmt: skip

    data = etl(config, workspace).artifact

    movies = pq.read_table(data.vocabulary("movieId"))["value"].to_pylist()
    rows, hashes = read_interactions(data, "train"), read_user_hashes(data, "train")
    assert hashes is not None
    bob, eve = hash_values(pa.array(["bob", "eve"])).tolist()
    found = {movies[item - 3]: value for item, value in zip(rows.item_idx.tolist(), hashes.tolist(), strict=True)}
    assert found == {"m1": 0, "m2": 0, "m3": bob, "m4": eve}
    assert read_user_hashes(data, "valid").tolist() == [bob]
