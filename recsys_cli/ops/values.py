"""Columns of raw or prepared rows as NumPy arrays: conversion from and to Arrow, null masks, hashes and casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from recsys_cli.features.hashing import hash_numbers, hash_value, hash_values
from recsys_cli.features.spec import is_list
from recsys_cli.packages import np, npt, pa, pc

Array: TypeAlias = "npt.NDArray[Any]"


class Values(NamedTuple):
    """Values of N rows.

    Attributes:
        data: Values, or elements of all lists; text, bytes and decimals as objects (None for null), times as stored integers.
        nulls: Null mask, shaped as `data`; None without nulls. Float columns have NaN instead.
        offsets: Start of each row's list, plus the number of elements at the end, shape (N + 1,); None for single values.
    """

    data: Array
    nulls: Array | None = None
    offsets: Array | None = None

    def with_data(self, data: Array, nulls: Array | None = None) -> Values:
        """Return other values in the shape of the column."""
        return Values(data, nulls, self.offsets)


FEW_ROWS = 32
"""Number of values up to which single lookups are faster than NumPy or Arrow."""


class _TableColumns(dict[str, Values]):
    """Columns of an Arrow table, converted when they are read; `converted` has the values before changes."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__()
        self._rows = rows
        self.converted: dict[str, Values] = {}

    def __missing__(self, name: str) -> Values:
        """Convert a column."""
        values = self[name] = self.converted[name] = from_arrow(self._rows.column(name))
        return values


Columns = dict[str, Values]
Apply = Callable[[Columns, int], None]
"""Replaces and adds columns of a number of rows."""
Types: TypeAlias = "dict[str, pa.DataType]"
"""Types of columns at one point of a plan; lists have list types."""


def element(kind: pa.DataType) -> pa.DataType:
    """Return the type of values or list elements, without dictionaries."""
    kind = kind.value_type if is_list(kind) else kind
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def retype(types: Types, name: str, kind: pa.DataType) -> None:
    """Set the type of a column's values or list elements."""
    types[name] = pa.list_(kind) if is_list(types[name]) else kind


_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
"""NumPy names of floating-point types by Arrow name; `pa.DataType.to_pandas_dtype` needs pandas."""


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy type of an Arrow type of numbers or booleans."""
    return np.dtype(_FLOATS.get(str(kind), str(kind)))


def stored(kind: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy type of values or list elements."""
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return numpy_type(kind)
    if types.is_floating(kind):
        return np.dtype(np.float32 if types.is_float16(kind) else numpy_type(kind))
    if types.is_temporal(kind) or types.is_null(kind):
        return np.dtype(np.int64)
    return np.dtype(object)


def combined(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return Arrow values in one chunk."""
    if isinstance(values, pa.Array):
        return values
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def from_arrow(values: pa.Array | pa.ChunkedArray) -> Values:
    """Convert an Arrow column; a null list becomes an empty one."""
    values, offsets = combined(values), None
    if is_list(values.type):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        values = values.flatten()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    dtype = stored(values.type)
    if dtype.kind == "O":
        data = np.empty(len(values), dtype=object)
        data[:] = values.to_pylist()
    elif dtype.kind == "f":
        data, nulls = values.to_numpy(zero_copy_only=False).astype(dtype), None
    else:
        data = _integers(values, dtype)
    return Values(data, nulls, offsets)


def _integers(values: pa.Array, dtype: np.dtype[Any]) -> Array:
    kind = values.type
    if pa.types.is_null(kind):
        return np.zeros(len(values), dtype=dtype)
    if pa.types.is_temporal(kind):
        short = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        values = values.cast(pa.int32() if short else pa.int64())
    missing = False if pa.types.is_boolean(kind) else 0
    return np.array((values.fill_null(missing) if values.null_count else values).to_numpy(zero_copy_only=False), dtype)


def to_arrow(values: Values, kind: pa.DataType) -> pa.Array:
    """Convert a column to an Arrow type, with null for NaN; the inverse of `from_arrow`."""
    held = element(kind)
    if pa.types.is_null(held):
        elements = pa.nulls(len(values.data))
    elif values.data.dtype == object:
        elements = pa.array(values.data.tolist(), held)
    else:
        elements = pa.array(values.data, mask=null_mask(values))
        short = pa.types.is_date32(held) or pa.types.is_time32(held)
        elements = (elements.cast(pa.int32()) if short else elements).cast(held)
    if values.offsets is None:
        return elements
    return pa.ListArray.from_arrays(pa.array(values.offsets.astype(np.int32)), elements)


def computed(
    compiled: Callable[[Mapping[str, pa.Table], Types], Apply], state: Mapping[str, pa.Table], rows: pa.Table
) -> pa.Table:
    """Run the NumPy form of a step on Arrow columns; the columns that it does not change stay as they are."""
    types: Types = {field.name: field.type for field in rows.schema}
    apply = compiled(state, types)
    inputs = _TableColumns(rows)
    with np.errstate(all="ignore"):
        apply(inputs, rows.num_rows)
    changed = {name: values for name, values in inputs.items() if values is not inputs.converted.get(name)}
    made = {name: to_arrow(values, types[name]) for name, values in changed.items() if name in types}
    return pa.table({name: rows.column(name) for name in rows.column_names} | made)


def set_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Replace or add a column."""
    if name in rows.column_names:
        return rows.set_column(rows.column_names.index(name), name, values)
    return rows.append_column(name, values)


def null_mask(values: Values) -> Array | None:
    """Return the mask of null and NaN; None without any."""
    if values.data.dtype.kind != "f":
        return values.nulls
    mask = np.isnan(values.data)
    return mask if mask.any() else None


def hashes_of(data: Array) -> npt.NDArray[np.uint64]:
    """Hash values as `hashing.hash_values` does; hashes of null and NaN are arbitrary."""
    if data.dtype != object:
        return hash_numbers(data)
    if len(data) > FEW_ROWS and all(isinstance(value, str) for value in data[:FEW_ROWS]):
        return hash_values(pa.array(data, pa.large_string()))
    return np.fromiter((0 if value is None else hash_value(value) for value in data.tolist()), np.uint64, len(data))


def comparable(values: Values) -> Values:
    """Return values with decimals as text, as vocabularies index them."""
    if values.data.dtype != object or not any(isinstance(value, Decimal) for value in values.data):
        return values
    texts = np.empty(len(values.data), dtype=object)
    texts[:] = [None if value is None else str(value) for value in values.data]
    return Values(texts, values.nulls, values.offsets)


def taken(values: Values, rows: Array) -> Values:
    """Return some rows of a column."""
    if values.offsets is None:
        return Values(values.data[rows], None if values.nulls is None else values.nulls[rows])
    starts = values.offsets[rows]
    return sliced(values, starts, values.offsets[rows + 1] - starts)


def sliced(values: Values, starts: Array, sizes: Array) -> Values:
    """Return lists of elements of a column, by the start and the number of elements of each list."""
    ends = np.cumsum(sizes)
    elements = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    nulls = None if values.nulls is None else values.nulls[elements]
    return Values(values.data[elements], nulls, np.concatenate(([0], ends)))


def canonical(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return Arrow values with NaN replaced by null and -0.0 by 0.0, so that equal keys have equal hashes."""
    kind = values.type
    if not pa.types.is_floating(kind):
        return values
    return pc.add(nan_to_null(values), pa.scalar(0.0, kind))


def nan_to_null(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return Arrow values with NaN replaced by null; those of other types than floats as they are."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def caster(kind: pa.DataType) -> Callable[[Values], Values]:
    """Return a cast of numbers to float64, int64 or uint64, the types of calculations."""
    dtype = numpy_type(kind)
    if dtype.kind != "f":
        return lambda values: Values(values.data.astype(dtype, copy=False), values.nulls, values.offsets)

    def cast(values: Values) -> Values:
        data = values.data
        if data.dtype == object:  # decimals
            data = np.array([np.nan if value is None else float(value) for value in data])
        data = data.astype(np.float64, copy=False)
        if values.nulls is not None:
            data = np.where(values.nulls, np.nan, data)
        return Values(data, None, values.offsets)

    return cast


def mapped(functions: Mapping[str, Callable[[Values], Values]]) -> Apply:
    """Return the replacement of columns by functions of their values."""
    pairs = tuple(functions.items())

    def apply(columns: Columns, rows: int) -> None:
        for name, function in pairs:
            columns[name] = function(columns[name])

    return apply
