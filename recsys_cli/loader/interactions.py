"""Interactions of a split from prepared shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.features.columns import IMPRESSION_HASH, ROW_NUMBER, USER_HASH, row_column
from recsys_cli.features.schema import UNSEEN, Column, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.targets import as_number, scales
from recsys_cli.workspace import PreparedData


def read_interactions(
    data: PreparedData,
    split: str,
    *,
    times: bool = False,
    only: Mapping[str, int] | None = None,
    cold_items: bool = False,
) -> Interactions:
    """Read the interactions of a split; an empty split has no rows.

    Ids of hash buckets are read as UNSEEN, because a bucket is no single user or item. `times` adds timestamps, and row
    numbers for the order of equal ones. `only` filters by encoded ids, or table rows of cold items. With `cold_items`
    the id of a cold-start item is its row in the dimension table.

    Raises:
        DataError: A label is neither 0 nor 1 and not declared as numeric.
    """
    schema = data.schema
    user, item, label = schema.only(Role.USER).name, schema.only(Role.ITEM).name, schema.label.name
    sampled = [column.name for column in schema.select(lambda column: column.role is Role.SAMPLED)]
    timed = [column.name for column in schema.select(_is_time)] if times else []
    shards = data.shards(split)
    numbered = [ROW_NUMBER] if timed and _has(shards, ROW_NUMBER) else []
    weight = [schema.weight.name] if schema.weight is not None and _has(shards, schema.weight.name) else []
    row = row_column(item) if _has(shards, row_column(item)) else None
    cold = [row] if row and cold_items else []
    names = [user, item, label, *sampled, *timed, *numbered, *weight, *cold]
    filters = [(row if row and encoded >= int(schema[name].cardinality or 0) else name, "==", encoded)
               for name, encoded in (only or {}).items()] or None  # fmt: skip
    parts = [pq.read_table(path, columns=names, filters=filters) for path in shards]
    if not parts:
        empty = np.empty(0, np.int32)
        no_times = empty.astype(np.int64) if timed else None
        none = np.empty(0, np.float32)
        return Interactions(empty, empty, none, times=no_times, row_numbers=no_times, weights=none)
    table = pa.concat_tables(parts)
    labels = table[label].to_numpy().astype(np.float32)
    _check(labels, schema.label, f"{data.folder / split}: label {label!r}")
    users, items = (_ids(table, schema[name]) for name in (user, item))
    if row and cold_items:
        rows = table[row].to_numpy()
        items = np.where(rows >= int(schema[item].cardinality or 0), rows, items)
    is_sampled = table[sampled[0]].to_numpy() != 0 if sampled else None
    timestamps = _without_nulls(table[timed[0]]) if timed else None
    numbers = _without_nulls(table[ROW_NUMBER]) if numbered else None
    if numbers is not None and numbers.max(initial=0) < 2**31:
        numbers = numbers.astype(np.int32, copy=False)
    weights = table[weight[0]].fill_null(1).to_numpy().astype(np.float32) if weight else None
    return Interactions(users, items, labels, is_sampled, timestamps, _mean(data), numbers, weights)


def read_observed(data: PreparedData, *splits: str, cold_items: bool = False) -> Interactions:
    """Read the interactions of splits in order, with times and without sampled negatives; see `read_interactions`."""
    first, *others = (read_interactions(data, split, times=True, cold_items=cold_items).observed() for split in splits)
    return sum(others, first)


def count_items(data: PreparedData) -> npt.NDArray[np.int64]:
    """Return the number of train rows per encoded item, without sampled negatives, by one shard at a time; shape (num_items,)."""
    column = data.schema.only(Role.ITEM)
    sampled = [each.name for each in data.schema.select(lambda each: each.role is Role.SAMPLED)]
    counts = np.zeros(int(column.cardinality or 0), np.int64)
    for path in data.shards("train"):
        table = pq.read_table(path, columns=[column.name, *sampled])
        ids = _ids(table, column)
        counts += np.bincount(ids[table[sampled[0]].to_numpy() == 0] if sampled else ids, minlength=len(counts))
    return counts


def read_user_rows(data: PreparedData, split: str) -> npt.NDArray[np.int32] | None:
    """Return each row's user as a row of the dimension table, in the order of `read_interactions`; shape (N,).

    None for a split without cold-start users.
    """
    rows = _read(data, split, row_column(data.schema.only(Role.USER).name))
    return None if rows is None else rows.to_numpy()


def read_user_hashes(data: PreparedData, split: str) -> npt.NDArray[np.uint64] | None:
    """Return a hash of each row's cold-start user, in the order of `read_interactions`; shape (N,).

    Values of users with an id are arbitrary. None for a split without hashes, usually train.
    """
    hashes = _read(data, split, USER_HASH)
    return None if hashes is None else hashes.fill_null(0).to_numpy()


def read_impressions(data: PreparedData, split: str) -> npt.NDArray[np.int32] | None:
    """Return the number of each row's impression, -1 without one, in the order of `read_interactions`; shape (N,).

    Numbers follow the hashes of the ids. None for data without `features.impression`.
    """
    hashes = _read(data, split, IMPRESSION_HASH)
    if hashes is None:
        return None
    numbers = np.unique(hashes.fill_null(0).to_numpy(), return_inverse=True)[1]
    return np.where(hashes.is_null().to_numpy(), -1, numbers).astype(np.int32)


def _has(shards: Sequence[Path], name: str) -> bool:
    return bool(shards) and name in pq.read_schema(shards[0]).names


def _read(data: PreparedData, split: str, name: str) -> pa.ChunkedArray | None:
    shards = data.shards(split)
    return (
        pa.concat_tables([pq.read_table(path, columns=[name]) for path in shards])[name] if _has(shards, name) else None
    )


def _check(labels: npt.NDArray[np.float32], column: Column, where: str) -> None:
    if column.is_regression:
        if not np.isfinite(labels).all():
            raise DataError(
                f"{where} is missing in a row or infinite; evaluation needs numbers",
                hint=f"filter such rows in features.ops: {{op: Dropna, columns: [{column.name}]}}",
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
    scale = scales(data).get(data.schema.label.name)
    return None if scale is None else scale.mean


def _without_nulls(values: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values, 0 for null; only sampled negatives have nulls, and no order."""
    return values.fill_null(pa.scalar(0, values.type)).to_numpy()


def _is_time(column: Column) -> bool:
    return column.role is Role.TIMESTAMP and column.table is None and not column.ragged


def _ids(table: pa.Table, column: Column) -> npt.NDArray[np.int32]:
    ids = table[column.name].to_numpy().astype(np.int32, copy=False)
    return np.where(ids < column.own_ids.stop, ids, np.int32(UNSEEN)) if column.buckets else ids
