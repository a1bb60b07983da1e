"""Columns of raw or prepared rows as NumPy arrays, and their Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.spec import is_list

Array = npt.NDArray[Any]


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


Columns = dict[str, Values]
Apply = Callable[[Columns, int], None]
"""Replaces and adds columns of a number of rows."""
Types = dict[str, pa.DataType]
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


def from_arrow(values: pa.Array | pa.ChunkedArray) -> Values:
    """Convert an Arrow column; a null list becomes an empty one."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    offsets = None
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

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        for name, function in pairs:
            columns[name] = function(columns[name])

    return apply
