"""Ids in one spelling: whole numbers stored as floats, such as 16764.0 of a column with missing values, become integers."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawTable
from recsys_cli.errors import DataError
from recsys_cli.features.spec import is_list
from recsys_cli.ops.values import nan_to_null

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
                texts = pl.Series(pl.from_arrow(values)).set(pl.Series(pl.from_arrow(found)), None)  # as in `to_times`
                rows = rows.set_column(at, name, texts.to_arrow().cast(pa.string()))
    return rows
