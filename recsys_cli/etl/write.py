"""Prepared rows to parquet files, the same for every engine, and what a reader will want to know of them."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.features.schema import NULL, UNSEEN, Column, Kind, Schema
from recsys_cli.workspace import naming

ROW_GROUP_ROWS = 1 << 18
"""Rows of a row group: what a streaming loader reads at a time."""

_PARTIAL = ".partial"


def count_missing(table: pa.Table, schema: Schema) -> dict[str, Counter[str]]:
    """Count for each column of the interactions the values (elements, where ragged) that are null, unseen and infinite."""
    return {column.name: _count(table.column(column.name), column) for column in schema.in_table(None)}


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file, plainly: shuffled ids and times hardly compress, and trying costs as much as all the rest.

    It is there whole or not at all, because a worker of a cluster may die on the way, or two may write the same one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{_PARTIAL}")
    with naming(path):
        pq.write_table(table, partial, compression="none", use_dictionary=False, row_group_size=ROW_GROUP_ROWS)
        partial.replace(path)


def sweep(folder: Path) -> None:
    """Remove from a folder what a worker that died has left half written."""
    for partial in folder.glob(f".*{_PARTIAL}"):
        partial.unlink(missing_ok=True)


def typed_table(table: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    """Bring a table to columns of the schema, in their order and types."""
    return pa.table({column.name: _typed(table.column(column.name), column) for column in columns})


def _typed(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    if column.unit is not None:
        time = pa.timestamp(column.unit)
        values = values.cast(pa.list_(time) if column.ragged else time)
    kind = pa.type_for_alias(column.dtype)
    values = values.cast(pa.list_(kind) if column.ragged else kind, safe=False)
    missing = float("nan") if column.dtype.startswith("float") else 0
    if column.ragged:
        return pa.chunked_array([_whole_lists(chunk, missing) for chunk in values.chunks], values.type)
    return pc.fill_null(values, missing) if column.dtype.startswith("float") else values


def _whole_lists(lists: pa.ListArray, missing: float) -> pa.ListArray:
    """Return lists without a null: a list that is null is empty, an element `missing`."""
    elements = lists.flatten()
    if lists.null_count == elements.null_count == 0:
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements.fill_null(pa.scalar(missing, elements.type)))


def count_numbers(values: pa.ChunkedArray, weights: npt.NDArray[np.int64] | None = None) -> Counter[str]:
    """Count numbers that are null (NaN included) and those that are infinite.

    Args:
        values: The numbers.
        weights: How often each counts; without them once.
    """
    null = pc.is_null(values, nan_is_null=True)
    infinite = pc.is_inf(values) if pa.types.is_floating(values.type) else None
    found = {"null": null, "infinite": infinite}
    if weights is None:
        counts = {name: (pc.sum(mask).as_py() or 0) if mask is not None else 0 for name, mask in found.items()}
        return Counter(counts | {"values": len(values)})
    masks = {name: pc.fill_null(mask, False).to_numpy() for name, mask in found.items() if mask is not None}
    weighed = {name: int(weights[mask].sum()) for name, mask in masks.items()}
    return Counter(weighed | {"values": int(weights.sum())})


def _count(values: pa.ChunkedArray, column: Column) -> Counter[str]:
    if column.ragged:
        values = pc.list_flatten(values)
    if column.kind is Kind.NUMERIC:
        return count_numbers(values)
    ids = [chunk.to_numpy(zero_copy_only=False) for chunk in values.chunks]
    nulls, unseen = (sum(int(np.count_nonzero(some == code)) for some in ids) for code in (NULL, UNSEEN))
    if column.buckets and column.cardinality is not None:
        first = column.cardinality - column.buckets
        unseen += sum(int(np.count_nonzero(some >= first)) for some in ids)
    return Counter({"null": nulls, "unseen": unseen, "values": len(values)})
