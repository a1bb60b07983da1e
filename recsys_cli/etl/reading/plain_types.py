"""Types of raw columns after reading: a small set supported by all ops and engines."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.features.spec import is_list

_TIME = pa.timestamp("us")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the read type for a stored type.

    Dictionaries and run-end encoded values become their values; all lists `list`; strings and bytes have 32-bit offsets;
    decimals become int64 without fractional digits and float64 with them; float16 becomes float32; dates become
    timestamps; timestamps with a zone become UTC without one. Structs, maps and lists of lists stay.
    """
    for is_kind, plain in _PLAIN:
        if is_kind(kind):
            return plain
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return pa.float64() if kind.scale > 0 else pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if is_list(kind) and not is_list(kind.value_type):
        return pa.list_(plain_type(kind.value_type))
    return kind


_PLAIN = (
    (
        lambda kind: str(kind) in {"large_string", "string_view"},
        pa.string(),
    ),  # views are unknown to Arrow before release 16
    (lambda kind: str(kind) in {"large_binary", "binary_view"}, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_date, _TIME),
)


def refuse_nested(schema: pa.Schema, *, where: str) -> None:
    """Refuse columns nested beyond lists of values."""
    nested = [field for field in schema if _is_nested(field.type)]
    if nested:
        named = ", ".join(f"{field.name} ({field.type})" for field in nested)
        raise DataError(
            f"{where}: cannot read {named}",
            hint="columns have values or lists of values: flatten the column, or remove it from the config",
        )


def _is_nested(kind: pa.DataType) -> bool:
    inner = kind.value_type if is_list(kind) else kind
    return bool(pa.types.is_nested(inner))


def refuse_mixed_times(stored: pa.DataType, target: pa.Field, *, where: str, typed_by: str) -> None:
    """Refuse numbers in a column of times and times in a column of numbers: a cast would guess their unit.

    `typed_by` is the file with the type of the target, for the error.
    """
    kinds = plain_type(stored), target.type
    if any(map(pa.types.is_temporal, kinds)) and any(map(_is_number, kinds)):
        raise DataError(
            f"column {target.name} has type {stored} in {where} and {target.type} in {typed_by}: "
            "numbers and datetimes in one column",
            hint="write the numbers as datetimes, or the datetimes as numbers of one unit, in one of the files",
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def to_plain_type(values: pa.ChunkedArray, kind: pa.DataType, *, name: str, where: str) -> pa.ChunkedArray:
    """Cast a column to its plain type in the first file; `where` is the file, for the error."""
    if values.type == kind:
        return values
    try:
        return pa.chunked_array([_cast(_stored(chunk), kind) for chunk in values.chunks], kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{where}: column {name} has type {values.type} and cannot be read as {kind}: {error}",
            hint="all files of a table need the types of the first; for your own files, set types in the dataset",
        ) from error


def _stored(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        return _stored(values.storage)
    return pc.run_end_decode(values) if isinstance(values, pa.RunEndEncodedArray) else values


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_float16(values.type):  # unsupported by Arrow before release 16
        wide = values.to_numpy(zero_copy_only=False).astype(np.float32)
        values = pa.array(wide, mask=values.is_null().to_numpy(zero_copy_only=False))
    return values.cast(kind)
