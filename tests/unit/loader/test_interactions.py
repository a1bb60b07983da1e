"""Interactions of prepared data: a bucket of unseen values is neither a user nor an item."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.measure import measure
from recsys_cli.features.schema import UNSEEN, Column, Kind, Role, Schema
from recsys_cli.loader.interactions import count_items, read_interactions
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


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

    counts = measure(Constant(), with_buckets(data, userId=2, movieId=3), EvaluateConfig(k=(1,), bootstrap=10))[
        0
    ].counts

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
    assert np.array_equal(
        count_items(data), np.bincount(read_interactions(data, "train").observed().item_idx, minlength=11)
    )
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
