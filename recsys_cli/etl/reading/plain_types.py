"""Types of raw columns after reading: a small set supported by all ops and engines."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawTable
from recsys_cli.errors import DataError
from recsys_cli.features.spec import is_list
from recsys_cli.ops.values import nan_to_null

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


_DIGITS = {pa.float32(): 24, pa.float64(): 53}
"""Binary digits of a whole number in a float; from 2^53 on, neighboring whole numbers are one float64."""


def id_schema(schema: pa.Schema, ids: Collection[str]) -> pa.Schema:
    """Return the schema with int64 for ids in floats, of values and lists."""
    return pa.schema([field.with_type(_id_type(field.type)) if field.name in ids else field for field in schema])


def whole_ids(rows: pa.Table, ids: Collection[str], table: RawTable) -> pa.Table:
    """Return the rows with int64 for ids in floats, NaN as null.

    Raises:
        DataError: An id has a fraction, or is a whole number that its type cannot tell from the next: 2^53 of float64, 2^24
            of float32.
    """
    for name in (column for column in rows.column_names if column in ids):
        values = rows.column(name)
        if (kind := _id_type(values.type)) == values.type:
            continue
        numbers = nan_to_null(pc.list_flatten(values) if is_list(values.type) else values)
        ends = pc.min_max(numbers)
        example = max(ends["min"].as_py() or 0, ends["max"].as_py() or 0, key=abs)
        text = f", or set types: {{{name}: string}} next to the table's files" if table.format == "csv" else ""
        if abs(example) >= 2 ** _DIGITS[numbers.type]:
            raise DataError(
                f"table {table.name!r}: column {name} has the id {example!r}, a {numbers.type}: from "
                f"2^{_DIGITS[numbers.type]} on, different ids become one",
                hint=f"write ids as text or whole numbers{text}",
            )
        if len(broken := numbers.filter(pc.not_equal(numbers, pc.floor(numbers)))):
            raise DataError(
                f"table {table.name!r}: column {name} has the id {broken[0].as_py()!r}, and ids are whole numbers or text",
                hint=f"name another column, or write ids as text{text}",
            )
        values = values if is_list(values.type) else numbers
        rows = rows.set_column(rows.column_names.index(name), name, values.cast(kind))
    return rows


def _id_type(kind: pa.DataType) -> pa.DataType:
    if is_list(kind):
        return pa.list_(_id_type(kind.value_type))
    return pa.int64() if kind in _DIGITS else kind


def missing_texts(rows: pa.Table, names: Collection[str], table: RawTable) -> pa.Table:
    """Return the rows with null for texts of some columns that are missing values; unquoted ones of text files are null already."""
    nulls = ["", *(() if table.format == "csv" else table.nulls)]
    for at, (name, values) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
        if name in names and pa.types.is_string(values.type):
            found = pc.is_in(values, pa.array(nulls, pa.string()))
            if pc.any(found).as_py():
                import polars as pl

                texts = pl.Series(pl.from_arrow(values)).set(pl.Series(pl.from_arrow(found)), None)  # as in `to_times`
                rows = rows.set_column(at, name, texts.to_arrow().cast(pa.string()))
    return rows
