"""Reads who met what, and how it went, from prepared shards: the three columns that baselines and rankings need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.features.schema import UNSEEN, Column, Role
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class Interactions:
    """The rows of one or more splits, in file order.

    Attributes:
        user_idx: Encoded users, shape (N,).
        item_idx: Encoded items, shape (N,).
        labels: The main label, 0 or 1, shape (N,), float32.
        drawn: Which rows were drawn by NegativeSampling, shape (N,); None where there are none.
    """

    user_idx: npt.NDArray[np.int32]
    item_idx: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    drawn: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.user_idx)

    def __add__(self, other: Interactions) -> Interactions:
        """Return the rows of both, one after the other."""
        return Interactions(
            np.concatenate([self.user_idx, other.user_idx]),
            np.concatenate([self.item_idx, other.item_idx]),
            np.concatenate([self.labels, other.labels]),
            None if self.drawn is None or other.drawn is None else np.concatenate([self.drawn, other.drawn]),
        )

    def met(self) -> Interactions:
        """Return the rows that happened, without the drawn ones: those that a ranking is about."""
        if self.drawn is None:
            return self
        return Interactions(self.user_idx[~self.drawn], self.item_idx[~self.drawn], self.labels[~self.drawn])


def read_interactions(data: PreparedData, split: str) -> Interactions:
    """Read a split's users, items and labels; no rows where the split is empty.

    A bucket is no user and no item of its own: ids of buckets are read as UNSEEN.

    Raises:
        DataError: A label is neither 0 nor 1; the metrics here would mean nothing.
    """
    schema = data.schema
    user, item, label = schema.only(Role.USER).name, schema.only(Role.ITEM).name, schema.label.name
    sampled = [column.name for column in schema.select(lambda column: column.role is Role.SAMPLED)]
    parts = [pq.read_table(path, columns=[user, item, label, *sampled]) for path in data.shards(split)]
    if not parts:
        nothing = np.empty(0, np.int32)
        return Interactions(nothing, nothing, np.empty(0, np.float32))
    table = pa.concat_tables(parts)
    labels = table[label].to_numpy().astype(np.float32)
    wrong = labels[(labels != 0) & (labels != 1)]
    if len(wrong):
        raise DataError(
            f"{data.folder / split}: label {label!r} has the value {wrong[0]:g}; evaluation needs labels of 0 and 1",
            hint='derive one in the config, such as {op: LambdaOp, expression: "rating > 3", output: label}',
        )
    users, items = (_ids(table, schema[name]) for name in (user, item))
    return Interactions(users, items, labels, table[sampled[0]].to_numpy() != 0 if sampled else None)


def _ids(table: pa.Table, column: Column) -> npt.NDArray[np.int32]:
    ids = table[column.name].to_numpy().astype(np.int32, copy=False)
    return np.where(ids < column.own_ids.stop, ids, np.int32(UNSEEN)) if column.buckets else ids
