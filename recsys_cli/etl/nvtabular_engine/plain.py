"""Raw columns for NVTabular: flat, of a type lossless in pandas, with a null mask.

pandas converts integers with nulls to floats. NVTabular fails on null lists and all-null columns, and encodes a null in
a list as unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.etl.join_keys import canonical
from recsys_cli.features.spec import is_list


@dataclass(frozen=True)
class Plain:
    """Values and null mask.

    Attributes:
        values: Values, (N,), with the zero of the type for nulls.
        nulls: Null mask, (N,); None without nulls.
    """

    values: pa.Array
    nulls: npt.NDArray[np.bool_] | None

    @property
    def valid(self) -> pa.Array:
        """The non-null values."""
        return self.values if self.nulls is None else self.values.filter(pa.array(~self.nulls))


def plain(values: pa.Array, column: str) -> Plain:
    """Convert scalar values to their plain type; NaN becomes null.

    Raises:
        DataError: The type is unsupported, or a string has a NUL character.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = plain_type(values.type, column)
    if pa.types.is_null(values.type):
        return Plain(pa.array(np.zeros(len(values), dtype=np.int8)), np.ones(len(values), dtype=bool))
    values = canonical(values.cast(kind))
    if pa.types.is_string(kind) and pc.any(pc.match_substring(values, "\0")).as_py():
        # The hash table of pandas ends strings at NUL, so two strings would get one id.
        raise DataError(
            f"column {column} has strings with a NUL character, unsupported by etl.engine=nvtabular",
            hint="use etl.engine=polars",
        )
    if values.null_count == 0:
        return Plain(values, None)
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return Plain(values.fill_null(zero(kind)), nulls)


def plain_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type for a scalar type inside NVTabular."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        return kind
    if types.is_boolean(kind) or types.is_null(kind):
        return pa.int8()
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    if types.is_temporal(kind):
        return pa.int64()
    raise DataError(
        f"column {column} has type {kind}, unsupported by etl.engine=nvtabular", hint="use etl.engine=polars"
    )


def zero(kind: pa.DataType) -> pa.Scalar:
    """Return the placeholder for nulls of a plain type."""
    value: Any = "" if pa.types.is_string(kind) else 0
    return pa.scalar(value, kind)


def raw_type(kind: pa.DataType) -> pa.DataType:
    """Return the raw type, with `string` for every kind of string."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if pa.types.is_large_string(kind) else kind


def raw(values: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """Convert plain values back to the raw type of their column."""
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    # A group-by in pandas widens integers, but dates need int32.
    return values.cast(plain_type(kind, column)).cast(raw_type(kind))


def element_type(kind: pa.DataType) -> pa.DataType:
    """Return the element type of lists; other types unchanged."""
    return kind.value_type if is_list(kind) else kind


def elements(values: pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int32] | None]:
    """Return the flat values, and the list offsets (N + 1) or None. Null lists become empty."""
    array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if not is_list(array.type):
        return array, None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def set_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """Replace or add a column."""
    if name in rows.column_names:
        return rows.set_column(rows.column_names.index(name), name, values)
    return rows.append_column(name, values)
