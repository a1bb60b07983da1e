"""Reads who met what, when, and how it went, from prepared shards: four columns at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.features.columns import ROW_NUMBER, USER_HASH, row_column
from recsys_cli.features.schema import UNSEEN, Column, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.scales import scales
from recsys_cli.loader.targets import as_number
from recsys_cli.workspace import PreparedData


def read_interactions(
    data: PreparedData,
    split: str,
    *,
    times: bool = False,
    only: Mapping[str, int] | None = None,
    cold_items: bool = False,
) -> Interactions:
    """Read a split's users, items and labels, and where asked for its times; no rows where the split is empty.

    A bucket is no user and no item of its own: ids of buckets are read as UNSEEN.

    Args:
        data: Prepared.
        split: Which.
        times: Whether to read the timestamp too, and the row numbers that order rows of one time.
        only: Encoded ids by their columns, or rows of cold items, to keep the rows with these alone; None for all.
        cold_items: Whether an item that train does not know is its row of the joined table, where it has one, and not UNSEEN.

    Raises:
        DataError: A label is neither 0 nor 1, and no number in units of its own; the metrics here would mean nothing.
    """
    schema = data.schema
    user, item, label = schema.only(Role.USER).name, schema.only(Role.ITEM).name, schema.label.name
    sampled = [column.name for column in schema.select(lambda column: column.role is Role.SAMPLED)]
    timed = [column.name for column in schema.select(_is_time)] if times else []
    shards = data.shards(split)
    numbered = [ROW_NUMBER] if timed and shards and ROW_NUMBER in pq.read_schema(shards[0]).names else []
    row = _cold_rows(data, split, item)
    cold = [row] if row and cold_items else []
    names = [user, item, label, *sampled, *timed, *numbered, *cold]
    which = [(row if row and encoded >= int(schema[name].cardinality or 0) else name, "==", encoded)
             for name, encoded in (only or {}).items()] or None  # fmt: skip
    parts = [pq.read_table(path, columns=names, filters=which) for path in shards]
    if not parts:
        nothing = np.empty(0, np.int32)
        none = nothing.astype(np.int64) if timed else None
        return Interactions(nothing, nothing, np.empty(0, np.float32), times=none, row_numbers=none)
    table = pa.concat_tables(parts)
    labels = table[label].to_numpy().astype(np.float32)
    _check(labels, schema.label, f"{data.folder / split}: label {label!r}")
    users, items = (_ids(table, schema[name]) for name in (user, item))
    if row and cold_items:
        rows = table[row].to_numpy()
        items = np.where(rows >= int(schema[item].cardinality or 0), rows, items)
    drawn = table[sampled[0]].to_numpy() != 0 if sampled else None
    when = _whole(table[timed[0]]) if timed else None
    numbers = _narrow(_whole(table[ROW_NUMBER])) if numbered else None
    return Interactions(users, items, labels, drawn, when, _mean(data), numbers)


def count_items(data: PreparedData) -> npt.NDArray[np.int64]:
    """Return how many rows of train each encoded item has, without those that were drawn; shape (num_items,).

    Shards are read one after the other, and only what is needed of them.
    """
    column = data.schema.only(Role.ITEM)
    sampled = [each.name for each in data.schema.select(lambda each: each.role is Role.SAMPLED)]
    counts = np.zeros(int(column.cardinality or 0), np.int64)
    for path in data.shards("train"):
        table = pq.read_table(path, columns=[column.name, *sampled])
        ids = _ids(table, column)
        counts += np.bincount(ids[table[sampled[0]].to_numpy() == 0] if sampled else ids, minlength=len(counts))
    return counts


def read_user_rows(data: PreparedData, split: str) -> npt.NDArray[np.int32] | None:
    """Return the row of each row's user in the joined table, in the order of `read_interactions`; shape (N,).

    None where the split has no users that the table has and train does not know.
    """
    name = _cold_rows(data, split, data.schema.only(Role.USER).name)
    if name is None:
        return None
    found: npt.NDArray[np.int32] = pa.concat_tables(
        [pq.read_table(path, columns=[name]) for path in data.shards(split)]
    )[name].to_numpy()
    return found


def _cold_rows(data: PreparedData, split: str, key: str) -> str | None:
    """Return the column with the table rows of a key; None where the split has none."""
    shards, name = data.shards(split), row_column(key)
    return name if shards and name in pq.read_schema(shards[0]).names else None


def read_user_hashes(data: PreparedData, split: str) -> npt.NDArray[np.uint64] | None:
    """Return a hash of the user of each row who has no id of its own, in the order of `read_interactions`; shape (N,).

    What stands there for a user with an id means nothing. None where the split has no hashes: train mostly, where each user has
    an id, and all splits of data that was prepared before they were written.
    """
    shards = data.shards(split)
    if not shards or USER_HASH not in pq.read_schema(shards[0]).names:
        return None
    hashes = pa.concat_tables([pq.read_table(path, columns=[USER_HASH]) for path in shards])[USER_HASH]
    return hashes.fill_null(0).to_numpy()


def _check(labels: npt.NDArray[np.float32], column: Column, where: str) -> None:
    if column.is_regression:
        if not np.isfinite(labels).all():
            raise DataError(
                f"{where} is missing in a row or infinite; evaluation needs numbers",
                hint=f"leave such rows out in features.ops: {{op: Dropna, columns: [{column.name}]}}",
            )
        return
    wrong = labels[(labels != 0) & (labels != 1)]
    if len(wrong):
        raise DataError(
            f"{where} has the value {wrong[0]:g}; evaluation needs labels of 0 and 1",
            hint='derive one in the config, such as {op: LambdaOp, expression: "rating > 3", output: label}; '
            + as_number(column.name),
        )


def _mean(data: PreparedData) -> float | None:
    found = scales(data).get(data.schema.label.name)
    return None if found is None else found.mean


def _whole(values: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a column's values; only sampled negatives have none, and no order."""
    return values.fill_null(pa.scalar(0, values.type)).to_numpy()


def _narrow(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.integer]:
    """Return row numbers in half of the memory where they fit."""
    return numbers.astype(np.int32, copy=False) if numbers.max(initial=0) < 2**31 else numbers


def _is_time(column: Column) -> bool:
    return column.role is Role.TIMESTAMP and column.table is None and not column.ragged


def _ids(table: pa.Table, column: Column) -> npt.NDArray[np.int32]:
    ids = table[column.name].to_numpy().astype(np.int32, copy=False)
    return np.where(ids < column.own_ids.stop, ids, np.int32(UNSEEN)) if column.buckets else ids
