"""Validated reads of prepared Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import Column, Kind, Role
from recsys_cli.features.spec import is_list
from recsys_cli.features.split import SPLITS
from recsys_cli.registry import suggest
from recsys_cli.workspace import PreparedData

REDO = "recsys etl --force"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ListArrays:
    """A list column: elements of all rows, length of each row's list, and weights of the elements (None: all 1)."""

    values: Array
    lengths: Array
    weights: Array | None = None


Arrays = Mapping[str, Array | ListArrays]


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file.

    Attributes:
        num_values: Upper bound of the number of elements of each list column.
    """

    path: Path
    index: int
    num_rows: int
    num_values: Mapping[str, int]


def row_groups(data: PreparedData, split: str, columns: Sequence[Column]) -> list[RowGroup]:
    """Return the row groups of a split in file order, without empty ones, from the footers of the files.

    Raises:
        DataError: The split does not exist, or train is empty; a file or column is missing or unreadable.
    """
    rows = data.manifest["rows"]
    if split not in rows:
        hint = REDO if split in SPLITS else f"name one of them{suggest(split, rows)}"
        raise DataError(f"{data.folder}: unknown split {split!r}; the splits are {', '.join(rows)}", hint=hint)
    groups = [group for path in data.shards(split) for group in groups_of(path, columns)]
    actual, expected = sum(group.num_rows for group in groups), int(rows[split])
    if actual != expected:
        raise DataError(
            f"{data.folder / split}: has {actual} rows, but the manifest says {expected}; files were lost or added",
            hint=REDO,
        )
    if actual == 0 and split == "train":
        raise DataError(f"{data.folder / split}: there are no rows to train on", hint=REDO)
    return [group for group in groups if group.num_rows]


def row_columns(data: PreparedData, split: str) -> list[Column]:
    """Return the columns of a split with rows of dimension tables, which are not in the schema."""
    shards = data.shards(split)
    columns = []
    for key in data.schema.tables if shards else ():
        with open_parquet(shards[0]) as file:
            has_rows = row_column(key) in file.schema_arrow.names
        if has_rows:
            with open_parquet(data.table(key)) as file:
                num_rows = file.metadata.num_rows
            columns.append(Column(
                name=row_column(key), role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=num_rows
            ))  # fmt: skip
    return columns


def read_group(file: pq.ParquetFile, group: RowGroup, columns: Sequence[Column]) -> Arrays:
    """Read and validate a row group of an open file; a null list becomes an empty list, a null number NaN.

    Raises:
        DataError: An id is null or out of range, a column is not numeric, or a list and its weights differ in length.
    """
    names = [name for column in columns for name in (column.name, column.weights) if name]
    return arrays_of(file.read_row_group(group.index, columns=names), group, columns)


def arrays_of(table: pa.Table, group: RowGroup, columns: Sequence[Column]) -> Arrays:
    """Validate the rows of a row group; see `read_group`."""
    return {column.name: _to_array(table, column, group) for column in columns}


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file; a `DataError` if it is not readable."""
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}", hint=REDO) from error


def groups_of(path: Path, columns: Sequence[Column]) -> list[RowGroup]:
    """Return the row groups of a file from its footer.

    Raises:
        DataError: A column is missing, or the footer has ids out of range.
    """
    with open_parquet(path) as file:
        _require(file.schema_arrow, columns, path)
        metadata, names = file.metadata, file.schema_arrow.names
    leaves = {name: position for position, name in enumerate(names)}  # one each: values, or lists of values
    groups = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        _check_footer(group, leaves, columns, path)
        num_values = {column.name: group.column(leaves[column.name]).num_values for column in columns if column.ragged}
        groups.append(RowGroup(path, index, group.num_rows, num_values))
    return groups


def _require(schema: pa.Schema, columns: Sequence[Column], path: Path) -> None:
    for column in columns:
        for name in (column.name, column.weights):
            if name is None:
                continue
            if name not in schema.names:
                raise DataError(f"{path}: column {name!r} of schema.json is missing", hint=REDO)
            if is_list(schema.field(name).type) != column.ragged:
                expected = "lists" if column.ragged else "single values"
                raise DataError(f"{path}: column {name!r} does not hold {expected}, as in schema.json", hint=REDO)


def _to_array(table: pa.Table, column: Column, group: RowGroup) -> Array | ListArrays:
    data = table[column.name]
    if not column.ragged:
        return _values(data, column, group.path)
    values = _values(pc.list_flatten(data), column, group.path)
    if column.weights is None:
        return ListArrays(values, _lengths(data))
    weights = _numbers(pc.list_flatten(table[column.weights]), column.weights, group.path)
    _check_weights(_lengths(data), _lengths(table[column.weights]), weights, column, group)
    return ListArrays(values, _lengths(data), weights)


def _lengths(data: pa.ChunkedArray) -> Array:
    return np.asarray(pc.fill_null(pc.list_value_length(data), 0).to_numpy())


def _check_weights(lengths: Array, others: Array, weights: Array, column: Column, group: RowGroup) -> None:
    differ = np.flatnonzero(lengths != others)
    if differ.size:
        row = int(differ[0])
        raise DataError(
            f"{group.path}: row {row} of row group {group.index} has {lengths[row]} elements in {column.name!r} and "
            f"{others[row]} in {column.weights!r}, their weights",
            hint="apply the same ops in features.ops to both columns",
        )
    if not np.isfinite(weights).all():
        raise DataError(
            f"{group.path}: row group {group.index} has nulls or infinite numbers in {column.weights!r}, "
            f"the weights of {column.name!r}",
            hint=f"fill them in features.ops: {{op: FillMissing, columns: [{column.weights}], fill_val: 1}}",
        )


def _values(data: pa.ChunkedArray, column: Column, path: Path) -> Array:
    if column.kind is Kind.CATEGORICAL:
        return _ids(data, column, path)
    if column.role is Role.TIMESTAMP and data.null_count:
        raise DataError(
            f"{path}: {data.null_count} rows have no {column.name!r}, so their histories have no end",
            hint="filter them in features.ops: {op: Dropna, columns: ["
            + column.name
            + "]}; give sampled negatives the time "
            "of their interaction: {op: NegativeSampling, context: [" + column.name + "], …}",
        )
    return _numbers(data, column.name, path)


def _numbers(data: pa.ChunkedArray, name: str, path: Path) -> Array:
    if not (pa.types.is_integer(data.type) or pa.types.is_floating(data.type) or pa.types.is_boolean(data.type)):
        raise DataError(f"{path}: column {name!r} holds {data.type}, not numbers", hint=REDO)
    return np.asarray(data.to_numpy())


def _ids(data: pa.ChunkedArray, column: Column, path: Path) -> Array:
    if not pa.types.is_integer(data.type) or data.null_count:
        content = f"{data.null_count} nulls" if data.null_count else str(data.type)
        raise DataError(f"{path}: column {column.name!r} holds {content} instead of ids", hint=REDO)
    values = np.asarray(data.to_numpy())
    if values.size:
        _check_range(int(values.min()), int(values.max()), column, path)
    return values


def _check_footer(
    metadata: pq.RowGroupMetaData, leaves: Mapping[str, int], columns: Sequence[Column], path: Path
) -> None:
    """Check the range of ids in the footer, before training starts."""
    for column in columns:
        statistics = metadata.column(leaves[column.name]).statistics
        if column.kind is Kind.CATEGORICAL and statistics is not None and isinstance(statistics.max, int):
            _check_range(statistics.min, statistics.max, column, path)


def _check_range(low: int, high: int, column: Column, path: Path) -> None:
    cardinality = int(column.cardinality or 0)
    if low < 0 or high >= cardinality:
        raise DataError(
            f"{path}: column {column.name!r} holds the id {low if low < 0 else high}, "
            f"but ids range from 0 to {cardinality - 1}",
            hint=REDO,
        )
