"""Prepared rows as parquet files, and counts of their missing values."""

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
"""Rows per row group, the unit of reads of a streaming loader."""

_PARTIAL = ".partial"


def count_missing(table: pa.Table, schema: Schema) -> dict[str, Counter[str]]:
    """Count null, unseen and infinite values (elements of lists) of each column of the interactions."""
    return {column.name: _count(table.column(column.name), column) for column in schema.in_table(None)}


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file atomically: a worker may die, or two workers may write the same file.

    Uncompressed: shuffled ids and times hardly compress, and the attempt would double the time of the transform.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{_PARTIAL}")
    with naming(path):
        pq.write_table(table, partial, compression="none", use_dictionary=False, row_group_size=ROW_GROUP_ROWS)
        partial.replace(path)


def sweep(folder: Path) -> None:
    """Remove partial files of dead workers from a folder."""
    for partial in folder.glob(f".*{_PARTIAL}"):
        partial.unlink(missing_ok=True)


def typed_table(table: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    """Return the columns of the schema from a table, in their order and types."""
    return pa.table({column.name: _typed(table.column(column.name), column) for column in columns})


def _typed(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    if column.unit is not None:
        time = pa.timestamp(column.unit)
        values = values.cast(pa.list_(time) if column.ragged else time)
    kind = pa.type_for_alias(column.dtype)
    values = values.cast(pa.list_(kind) if column.ragged else kind, safe=False)
    missing = float("nan") if column.dtype.startswith("float") else 0
    if column.ragged:
        return pa.chunked_array([_without_nulls(chunk, missing) for chunk in values.chunks], values.type)
    return pc.fill_null(values, missing) if column.dtype.startswith("float") else values


def _without_nulls(lists: pa.ListArray, missing: float) -> pa.ListArray:
    """Replace null lists by empty ones, and null elements by `missing`."""
    elements = lists.flatten()
    if lists.null_count == elements.null_count == 0:
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements.fill_null(pa.scalar(missing, elements.type)))


def count_numbers(values: pa.ChunkedArray, weights: npt.NDArray[np.int64] | None = None) -> Counter[str]:
    """Count null (or NaN) and infinite numbers, each with its weight, 1 by default."""
    null = pc.is_null(values, nan_is_null=True)
    infinite = pc.is_inf(values) if pa.types.is_floating(values.type) else None
    masks = {"null": null, "infinite": infinite}
    if weights is None:
        counts = {name: (pc.sum(mask).as_py() or 0) if mask is not None else 0 for name, mask in masks.items()}
        return Counter(counts | {"values": len(values)})
    weighted = {
        name: int(weights[pc.fill_null(mask, False).to_numpy()].sum())
        for name, mask in masks.items()
        if mask is not None
    }
    return Counter(weighted | {"values": int(weights.sum())})


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
