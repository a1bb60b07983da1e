"""A split by user keeps its users apart, although none of those held out has an id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rated import FEATURES

from recsys_cli.config import RunConfig
from recsys_cli.features.hashing import hash_values
from recsys_cli.features.schema import UNSEEN, USER_HASH
from recsys_cli.loader.interactions import read_interactions, read_user_hashes
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace

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


def test_other_splits_have_no_such_column(raw, workspace: Workspace) -> None:
    data = etl(_config(method="random", valid=0.3), workspace).artifact

    assert pq.read_schema(data.shards("valid")[0]).names == [column.name for column in data.schema.in_table(None)]
