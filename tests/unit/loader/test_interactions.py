"""Interactions, batches of users, and scales of labels from prepared data."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.evaluation.measure import measure
from recsys_cli.features.schema import UNSEEN, Column, Kind, Role, Schema, Task
from recsys_cli.interactions import Interactions
from recsys_cli.loader import UserLoader, scales
from recsys_cli.loader.interactions import count_items, read_interactions
from recsys_cli.loader.loader import auto_batch_size
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData, write_manifest
from tests.pairs import ids as id_column
from tests.pairs import interactions


class Constant(Model):
    """Scores all pairs alike."""

    def score(self, batch: Batch) -> Tensor:
        return torch.zeros(len(batch.features["userId"]))


def with_buckets(data: PreparedData, **buckets: int) -> PreparedData:
    """Declare the last ids of columns as buckets."""
    columns = (column.model_copy(update={"buckets": buckets.get(column.name, 0)}) for column in data.schema.columns)
    Schema(columns=tuple(columns)).write(data.folder / "schema.json")
    return data


def test_ids_of_buckets_are_unseen(make_prepared) -> None:
    data = make_prepared(users=10, items=8, rows=400)
    before = read_interactions(data, "train")
    after = read_interactions(with_buckets(data, userId=2, movieId=3), "train")
    assert np.array_equal(after.user_idx, np.where(before.user_idx >= 11, UNSEEN, before.user_idx))
    assert np.array_equal(after.item_idx, np.where(before.item_idx >= 8, UNSEEN, before.item_idx))
    assert after.user_idx.dtype == after.item_idx.dtype == np.int32


def test_buckets_are_neither_ranked_for_nor_recommended(make_prepared) -> None:
    data = make_prepared(users=10, items=8, rows=100)
    rows = read_interactions(data, "valid")
    config = EvaluateConfig(k=(1,), bootstrap=10)
    counts = measure(Constant(), with_buckets(data, userId=2, movieId=3), config)[0].counts
    assert counts.candidates == 5
    assert counts.users <= 8
    assert counts.unknown_user_rows == np.count_nonzero(rows.user_idx >= 11) > 0
    assert counts.unknown_item_rows == np.count_nonzero(rows.item_idx >= 8) > 0


def test_rows_of_one_id_are_the_same_as_among_all(make_prepared) -> None:
    data = make_prepared(users=10, items=8, rows=400)
    whole = read_interactions(data, "train", times=True)
    one = read_interactions(data, "train", times=True, only={"movieId": 5, "userId": 7})
    among = whole.chosen((whole.item_idx == 5) & (whole.user_idx == 7))
    assert len(one) > 0
    assert np.array_equal(one.user_idx, among.user_idx)
    assert np.array_equal(one.item_idx, among.item_idx)
    assert np.array_equal(one.labels, among.labels)
    assert len(read_interactions(data, "train", only={"userId": 999})) == 0


def test_items_are_counted_without_buckets_and_rows_that_were_drawn(make_prepared) -> None:
    data = make_prepared(users=10, items=8, rows=400)
    items = read_interactions(data, "train").item_idx
    assert np.array_equal(count_items(data), np.bincount(items, minlength=11))
    assert count_items(with_buckets(data, movieId=3))[8:].sum() == 0
    data = _with_drawn(make_prepared(users=10, items=8, rows=401))
    observed = read_interactions(data, "train").observed()
    assert np.array_equal(count_items(data), np.bincount(observed.item_idx, minlength=11))
    assert 0 < count_items(data).sum() < data.rows("train")


def _with_drawn(data: PreparedData) -> PreparedData:
    """Mark rows as sampled negatives."""
    for path in data.shards("train"):
        table = pq.read_table(path)
        drawn = np.arange(table.num_rows, dtype=np.int8) % 3 == 0
        pq.write_table(table.append_column("sampled", pa.array(drawn.astype(np.int8))), path)
    column = Column(name="sampled", role=Role.SAMPLED, kind=Kind.NUMERIC, dtype="int8")
    Schema(columns=(*data.schema.columns, column)).write(data.folder / "schema.json")
    return PreparedData(data.folder)


SCHEMA = Schema(
    columns=(
        id_column("who", Role.USER, 40),
        id_column("what", Role.ITEM, 9),
        Column(name="liked", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
    )
)
# Users 3 to 25 have two items, 26 has one, 27 one and one that train does not know, and 2 is all whom train does not know.
MET = [(user, 3 + item) for user in range(3, 26) for item in (0, user % 5 + 1)]
MET += [(26, 4), (27, 4), (27, 2), (2, 4), (2, 5), (2, 6)]


def loader(**options: int) -> UserLoader:
    return UserLoader(interactions(*((*pair, 1) for pair in MET)), SCHEMA, **{"batch_size": 5, "seed": 1, **options})


def ids(users: UserLoader) -> list[list[int]]:
    return [batch.features["who"].tolist() for batch in users]  # type: ignore[union-attr]


def test_users_come_once_if_they_have_two_items() -> None:
    users = loader()
    found = ids(users)
    together = list(chain.from_iterable(found))
    assert sorted(together) == list(range(3, 26)) != together
    assert [len(batch) for batch in found] == [5, 5, 5, 5, 3] == [users.step_rows(step) for step in range(len(users))]
    assert users.num_rows == 23


def test_a_batch_of_users_has_ids_and_ones() -> None:
    batch = next(iter(loader()))
    assert (set(batch.features), set(batch.labels), batch.weight) == ({"who"}, {"liked"}, None)
    assert batch.features["who"].dtype == torch.int32  # type: ignore[union-attr]
    assert torch.equal(batch.labels["liked"], torch.ones(5))


def test_order_of_users_is_decided_by_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        users = loader(seed=seed)
        users.set_epoch(epoch)
        return ids(users)

    assert order(1, 2) == order(1, 2)
    assert len({str(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


def test_users_go_on_where_they_were() -> None:
    whole, users = loader(), loader()
    whole.set_epoch(3)
    expected = ids(whole)
    users.set_epoch(3)
    taken = iter(users)
    for _ in range(2):
        next(taken)
    state = users.state_dict()
    assert state == {"epoch": 3, "step": 2}
    other = loader()
    other.load_state_dict(state)
    assert ids(other) == expected[2:]
    assert ids(other) == expected  # an iteration after that is of the whole epoch


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_ranks_share_the_auto_batch_size(ranks: int) -> None:
    parts = [ids(loader(rank=rank, world_size=ranks)) for rank in range(ranks)]
    assert [list(chain.from_iterable(pieces)) for pieces in zip(*parts, strict=True)] == ids(loader())


def test_users_without_anything_next_and_impossible_shares_are_refused() -> None:
    with pytest.raises(DataError, match="no user of train has two items"):
        UserLoader(interactions((3, 3, 1), (4, 3, 1), (2, 4, 1), (2, 4, 1)), SCHEMA, batch_size=4)
    with pytest.raises(ConfigError, match="batch_size=0, rank=0 of 1"):
        loader(batch_size=0)
    with pytest.raises(ConfigError, match="rank=2 of 2"):
        loader(rank=2, world_size=2)


@pytest.mark.parametrize(
    ("users", "size"),
    [(1, 32), (38_399, 32), (38_400, 64), (76_800, 128), (153_599, 128), (153_600, 256), (10_000_000, 256)],
)
def test_steps_grow_with_the_users_as_long_as_an_epoch_has_many(users: int, size: int) -> None:
    assert auto_batch_size(users) == size


def test_a_loader_of_users_takes_its_size_from_them() -> None:
    users = np.repeat(np.arange(3, 38_403, dtype=np.int32), 2)
    rows = Interactions(users, np.full(len(users), 3, np.int32), np.ones(len(users), np.float32))
    loader = UserLoader(rows, SCHEMA, batch_size="auto")
    assert (loader.batch_size, len(loader)) == (64, 600)
    assert UserLoader(rows, SCHEMA, batch_size=100).batch_size == 100


def write(folder: Path, parts: list[np.ndarray], task: Task = "regression") -> PreparedData:
    (folder / "train").mkdir(parents=True)
    for number, part in enumerate(parts):
        pq.write_table(pa.table({"seconds": part}), folder / "train" / f"{number:05d}.parquet")
    column = Column(name="seconds", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float64", task=task)
    Schema(columns=(column,)).write(folder / "schema.json")
    rows = {"train": sum(len(part) for part in parts)}
    write_manifest(folder, "PreparedData", {"key": "by-hand", "rows": rows})
    return PreparedData(folder)


@pytest.mark.parametrize("mean", [0.0, 1e9])
def test_mean_and_deviation_are_those_of_all_rows(tmp_path: Path, mean: float) -> None:
    values = mean + np.random.default_rng(0).normal(0, 2.5, 5_000)
    found = scales(write(tmp_path / "data", [values[:7], values[7:7], values[7:4_000], values[4_000:]]))
    assert found["seconds"].mean == pytest.approx(values.mean(), rel=1e-12)
    assert found["seconds"].deviation == pytest.approx(values.std(), rel=1e-6)


def test_equal_values_have_the_deviation_1_and_labels_of_0_and_1_no_scale(tmp_path: Path) -> None:
    found = scales(write(tmp_path / "equal", [np.full(5, 3.5), np.full(2, 3.5)]))["seconds"]
    assert (found.mean, found.deviation) == (3.5, 1.0)
    assert scales(write(tmp_path / "labels", [np.array([0.0, 1.0])], task="binary")) == {}


def test_prepared_fixture_is_whole(make_prepared) -> None:
    data = make_prepared(rows=101, shards=3)
    assert data.exists
    assert data.schema.names == ("userId", "movieId", "label", "timestamp", "genres")
    assert data.schema["genres"].ragged
    assert data.schema.tables == ("movieId",)
    assert sum(pq.read_metadata(path).num_rows for path in data.shards("train")) == data.rows("train") == 101
    assert pq.read_table(data.table("movieId")).num_rows == data.schema["movieId"].cardinality
