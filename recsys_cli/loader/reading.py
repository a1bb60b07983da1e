"""What a prepared parquet file must hold, column by column, and what is said when it does not."""

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
from recsys_cli.workspace import PreparedData

REDO = "recsys etl --force"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ListArrays:
    """A column of lists as it was read: all elements, how many each row has, and what each counts (None: once)."""

    values: Array
    lengths: Array
    weights: Array | None = None


Arrays = Mapping[str, Array | ListArrays]


@dataclass(frozen=True)
class RowGroup:
    """A part of a file that can be read on its own.

    Attributes:
        path: The file.
        index: Which part of it.
        num_rows: Its rows.
        num_values: For each list column, at most how many elements there are.
    """

    path: Path
    index: int
    num_rows: int
    num_values: Mapping[str, int]


def row_groups(data: PreparedData, split: str, columns: Sequence[Column]) -> list[RowGroup]:
    """Find the parts of a split from the files' footers, in order; no row is read.

    Raises:
        DataError: The split is not there, or it is for training and empty; a file or a column is missing or unreadable.
    """
    rows = data.manifest["rows"]
    if split not in rows:
        raise DataError(f"{data.folder}: there is no split {split!r}; there are {', '.join(rows)}", hint=REDO)
    groups = [group for path in data.shards(split) for group in groups_of(path, columns)]
    found, expected = sum(group.num_rows for group in groups), int(rows[split])
    if found != expected:
        raise DataError(
            f"{data.folder / split}: holds {found} rows where the manifest says {expected}; files were lost or added",
            hint=REDO,
        )
    if found == 0 and split == "train":
        raise DataError(f"{data.folder / split}: there are no rows to train on", hint=REDO)
    return [group for group in groups if group.num_rows]


def row_columns(data: PreparedData, split: str) -> list[Column]:
    """Return the columns with the table rows of keys that a split has beside those of the schema, for keys of its tables.

    Raises:
        DataError: A file is not readable.
    """
    shards = data.shards(split)
    found = []
    for key in data.schema.tables if shards else ():
        with open_parquet(shards[0]) as file:
            there = row_column(key) in file.schema_arrow.names
        if there:
            with open_parquet(data.table(key)) as file:
                found.append(_row_column(key, file.metadata.num_rows))
    return found


def _row_column(key: str, num_rows: int) -> Column:
    return Column(name=row_column(key), role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=num_rows)


def read_group(file: pq.ParquetFile, group: RowGroup, columns: Sequence[Column]) -> Arrays:
    """Read and check one part of an open file; a null list is an empty list, a null number is NaN.

    Raises:
        DataError: An id is null, negative or not below the cardinality, a column does not hold numbers, or a list and its
            weights differ in length.
    """
    names = [name for column in columns for name in (column.name, column.weights) if name]
    table = file.read_row_group(group.index, columns=names)
    return {column.name: _to_array(table, column, group) for column in columns}


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a parquet file.

    Raises:
        DataError: It is not one.
    """
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}", hint=REDO) from error


def groups_of(path: Path, columns: Sequence[Column]) -> list[RowGroup]:
    """Find the parts of one file from its footer, in order.

    Raises:
        DataError: It is not a parquet file, a column is not in it, or the footer tells of ids that cannot be.
    """
    with open_parquet(path) as file:
        _require(file.schema_arrow, columns, path)
        metadata = file.metadata
    leaves = {metadata.schema.column(i).path.partition(".")[0]: i for i in range(metadata.num_columns)}
    groups = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        _check_footer(group, leaves, columns, path)
        num_values = {column.name: group.column(leaves[column.name]).num_values for column in columns if column.ragged}
        groups.append(RowGroup(path, index, group.num_rows, num_values))
    return groups


def _require(found: pa.Schema, columns: Sequence[Column], path: Path) -> None:
    for column in columns:
        for name in (column.name, column.weights):
            if name is None:
                continue
            if name not in found.names:
                raise DataError(f"{path}: no column {name!r}, which schema.json says is there", hint=REDO)
            if _is_list(found.field(name).type) != column.ragged:
                wanted = "lists" if column.ragged else "single values"
                raise DataError(f"{path}: column {name!r} does not hold {wanted} as schema.json says", hint=REDO)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype))


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
            f"{others[row]} in {column.weights!r}, by which they are weighted",
            hint="what cuts or chooses elements of one in features.ops has to do the same to the other",
        )
    if not np.isfinite(weights).all():
        raise DataError(
            f"{group.path}: row group {group.index} has elements of {column.weights!r} that are no finite numbers, "
            f"by which those of {column.name!r} are weighted",
            hint=f"fill them in features.ops: {{op: FillMissing, columns: [{column.weights}], fill_val: 1}}",
        )


def _values(data: pa.ChunkedArray, column: Column, path: Path) -> Array:
    if column.kind is Kind.CATEGORICAL:
        return _ids(data, column, path)
    return _numbers(data, column.name, path)


def _numbers(data: pa.ChunkedArray, name: str, path: Path) -> Array:
    if not (pa.types.is_integer(data.type) or pa.types.is_floating(data.type) or pa.types.is_boolean(data.type)):
        raise DataError(f"{path}: column {name!r} holds {data.type}, not numbers", hint=REDO)
    return np.asarray(data.to_numpy())


def _ids(data: pa.ChunkedArray, column: Column, path: Path) -> Array:
    if not pa.types.is_integer(data.type) or data.null_count:
        what = f"{data.null_count} nulls" if data.null_count else str(data.type)
        raise DataError(f"{path}: column {column.name!r} holds {what} where ids were expected", hint=REDO)
    values = np.asarray(data.to_numpy())
    if values.size:
        _check_range(int(values.min()), int(values.max()), column, path)
    return values


def _check_footer(
    metadata: pq.RowGroupMetaData, leaves: Mapping[str, int], columns: Sequence[Column], path: Path
) -> None:
    """Check ids by what the footer says of them, so that a bad one is found before training and not in the middle."""
    for column in columns:
        statistics = metadata.column(leaves[column.name]).statistics
        if column.kind is Kind.CATEGORICAL and statistics is not None and isinstance(statistics.max, int):
            _check_range(statistics.min, statistics.max, column, path)


def _check_range(low: int, high: int, column: Column, path: Path) -> None:
    cardinality = int(column.cardinality or 0)
    if low < 0 or high >= cardinality:
        raise DataError(
            f"{path}: column {column.name!r} holds the id {low if low < 0 else high}, "
            f"but ids go from 0 to {cardinality - 1}",
            hint=REDO,
        )
