"""Raw columns as NVTabular can take them: flat, of a type that pandas holds without loss, and never a null.

pandas turns whole numbers with a null into floats; NVTabular stops at null lists, at columns of nothing but nulls, and
takes a null inside a list for an unseen value. So nulls stay on this side, as a mask beside the values.
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


@dataclass(frozen=True)
class Plain:
    """Values, and which of them are none.

    Attributes:
        values: N values without nulls; where there is none, the zero of the type.
        nulls: N flags, or None where all values are there.
    """

    values: pa.Array
    nulls: npt.NDArray[np.bool_] | None

    @property
    def known(self) -> pa.Array:
        """The values that are there."""
        return self.values if self.nulls is None else self.values.filter(pa.array(~self.nulls))


def plain(values: pa.Array, column: str) -> Plain:
    """Return scalar values in their plain type; NaN is null. The column is named in errors.

    Raises:
        DataError: The values are of a type that NVTabular does not take, or texts with a NUL in them.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = plain_type(values.type, column)
    if pa.types.is_null(values.type):
        return Plain(pa.array(np.zeros(len(values), dtype=np.int8)), np.ones(len(values), dtype=bool))
    values = canonical(values.cast(kind))
    if pa.types.is_string(kind) and pc.any(pc.match_substring(values, "\0")).as_py():
        # To the hash table of pandas a text ends there, so that two texts would get one id.
        raise DataError(
            f"column {column} has texts with a NUL character, which etl.engine=nvtabular does not take",
            hint="use etl.engine=polars",
        )
    if values.null_count == 0:
        return Plain(values, None)
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    return Plain(values.fill_null(zero(kind)), nulls)


def plain_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type that stands for a scalar type inside NVTabular.

    Raises:
        DataError: There is none.
    """
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
        f"column {column} is of type {kind}, which etl.engine=nvtabular does not take", hint="use etl.engine=polars"
    )


def zero(kind: pa.DataType) -> pa.Scalar:
    """Return the value of a plain type that stands where there is none."""
    nothing: Any = "" if pa.types.is_string(kind) else 0
    return pa.scalar(nothing, kind)


def raw_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a vocabulary's values: the raw one, but plain text however the text is stored."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.string() if pa.types.is_large_string(kind) else kind


def raw(values: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """Return plain values of a column in the raw type that they had."""
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    # A group-by of pandas widens whole numbers, and dates are made of narrow ones only.
    return values.cast(plain_type(kind, column)).cast(raw_type(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether a raw column holds a list in each row."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def element_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values: of the elements, where it holds lists."""
    return kind.value_type if is_list(kind) else kind


def elements(values: pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int32] | None]:
    """Return a column's values, a list's one after the other, and the offsets (N + 1) of the lists, or None for scalars.

    A null list is an empty one.
    """
    array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if not is_list(array.type):
        return array, None
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return array.flatten(), np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
