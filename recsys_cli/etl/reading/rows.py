"""Raw rows in Arrow: the types and the shape of rows after reading, and dataframes."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.data.selection import least, mask, nothing_new, span
from recsys_cli.data.source import RawTable
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.spec import is_list
from recsys_cli.ops.values import nan_to_null

if TYPE_CHECKING:
    from recsys_cli.etl.reading.reader import Reader

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
    # Views are unknown to Arrow before release 16.
    (lambda kind: str(kind) in {"large_string", "string_view"}, pa.string()),
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
    return bool(pa.types.is_nested(kind.value_type if is_list(kind) else kind))


def refuse_mixed_times(stored: pa.DataType, target: pa.Field, *, where: str, typed_by: str) -> None:
    """Refuse numbers in a column of times and times in a column of numbers: a cast would guess their unit.

    `typed_by` is the file with the type of the target, for the error.
    """
    kinds = plain_type(stored), target.type
    if any(map(pa.types.is_temporal, kinds)) and any(map(is_number, kinds)):
        raise DataError(
            f"column {target.name} has type {stored} in {where} and {target.type} in {typed_by}: "
            "numbers and datetimes in one column",
            hint="write the numbers as datetimes, or the datetimes as numbers of one unit, in one of the files",
        )


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is of whole or real numbers."""
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


def reshaped_schema(schema: pa.Schema, table: RawTable, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema after `explode`, `clicks`, `order` and `line`.

    Raises:
        DataError: The exploded column holds no lists, or a new name is taken.
    """
    if _is_plain(table):
        return schema
    fields = {field.name: field for field in schema}
    if (name := table.explode) is not None:
        if name not in fields or not is_list(fields[name].type):
            held = f"holds {fields[name].type}" if name in fields else "does not exist"
            raise DataError(
                f"table {table.name!r}: explode: {name!r} {held}, and has to hold lists",
                hint=f'for lists in text set lists: {{{name}: "SEPARATOR"}} next to the files',
            )
        fields[name] = pa.field(name, fields[name].type.value_type)
    for option, new, kind in (
        ("clicks", table.clicks, pa.int8()),
        ("order", table.order, pa.int64()),
        ("line", table.line, pa.int64()),
    ):
        if new is None:
            continue
        if new in fields:
            raise DataError(f"table {table.name!r}: {option}: the table has a column {new!r}; choose another name")
        fields[new] = pa.field(new, kind)
    for old, name in table.rename.items():
        if old in fields and name in fields:
            raise DataError(f"table {table.name!r}: rename: the table has a column {name!r}; choose another name")
    fields = {table.rename.get(name, name): field for name, field in fields.items()}
    fields = {name: field.with_name(name) for name, field in fields.items()}
    return pa.schema([fields[name] for name in columns] if columns is not None else list(fields.values()))


def _is_plain(table: RawTable) -> bool:
    return table.explode is None and table.order is None and table.line is None and not table.rename


def reshaped(
    batches: Iterable[pa.Table], table: RawTable, columns: Sequence[str] | None, *, first: int = 0
) -> Generator[pa.Table]:
    """Yield the batches with a row per element of the list column `explode`; nulls and empty texts go.

    `order` numbers the rows from `first`.

    Raises:
        DataError: An element has no click.
    """
    if _is_plain(table):
        yield from batches
        return
    first_line = 0
    for batch in batches:
        if table.line is not None:
            numbers = np.arange(first_line, first_line + batch.num_rows)
            first_line += batch.num_rows
            batch = batch.append_column(table.line, pa.array(numbers))  # noqa: PLW2901
        rows = batch if table.explode is None else _exploded(batch, table.explode)
        if table.clicks is not None:
            rows = _clicked(rows, table)
        if table.order is not None:
            rows = rows.append_column(table.order, pa.array(np.arange(first, first + rows.num_rows)))
        first += rows.num_rows
        rows = rows.rename_columns([table.rename.get(name, name) for name in rows.column_names])
        yield rows if columns is None else rows.select(list(columns))


def _clicked(rows: pa.Table, table: RawTable) -> pa.Table:
    """Divide candidates such as "N1-0" into an item and a click."""
    name, clicks = str(table.explode), str(table.clicks)
    position = rows.column_names.index(name)
    texts = rows.column(name).cast(pa.string())
    is_candidate = pc.match_substring_regex(texts, "^.+-[01]$")
    if not pc.all(is_candidate).as_py():
        raise DataError(
            f"table {table.name!r}: clicks: column {name} has {texts.filter(pc.invert(is_candidate))[0].as_py()!r}, "
            "and candidates end in -0 or -1",
            hint="remove the rows without clicks, such as those of a published test set",
        )
    items = pc.utf8_slice_codeunits(texts, 0, -2)
    return rows.set_column(position, name, items).append_column(clicks, pc.ends_with(texts, "-1").cast(pa.int8()))


def _exploded(rows: pa.Table, name: str) -> pa.Table:
    parts = []
    for batch in rows.to_batches():
        lists = batch.column(name)
        elements, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
        keep = pc.is_valid(elements)
        if pa.types.is_string(elements.type):
            keep = pc.and_(keep, pc.fill_null(pc.not_equal(elements, ""), False))
        elements, parents = elements.filter(keep), parents.filter(keep)
        columns = {one: elements if one == name else batch.column(one).take(parents) for one in rows.column_names}
        parts.append(pa.table(columns))
    if not parts:
        fields = [field if field.name != name else pa.field(name, field.type.value_type) for field in rows.schema]
        return pa.schema(fields).empty_table()
    return pa.concat_tables(parts)


def limits(reader: Reader) -> dict[str, pa.Scalar]:
    """Return the least values of the columns in `since`; a time span takes a pass over its column, for the newest row.

    Raises:
        ConfigError: A value does not fit its column.
        DataError: A file is unreadable, or lacks a column.
    """
    table = reader.table
    spans = [name for name, value in table.since.items() if span(value) is not None]
    newest: dict[str, pa.Scalar] = {}
    if spans:
        everything = replace(reader, table=replace(table, since={}), columns=spans, rejected=[])
        for rows in everything.batches():
            for name in spans:
                last = pc.max(rows[name])
                newest[name] = pc.max_element_wise(newest.get(name, last), last)
    timed = {column.name for column in table.columns if column.time is not None} | reader.times.keys()
    types = replace(reader, table=replace(table, since={}), columns=tuple(table.since)).schema()
    return {
        name: least(name, value, types.field(name).type, newest=newest.get(name), is_time=name in timed)
        for name, value in table.since.items()
    }


def recent(
    tables: Iterable[pa.Table], limits: Mapping[str, pa.Scalar], table: RawTable, *, required: bool = True
) -> Generator[pa.Table]:
    """Yield the rows that reach all limits.

    Raises:
        DataError: There are none, and they are required.
    """
    count = 0
    for rows in tables:
        kept = rows.filter(reduce(pc.and_, (mask(rows[name], limit) for name, limit in limits.items())))
        count += kept.num_rows
        yield kept
    if required and not count:
        raise nothing_new(table.name, table.since)


def to_arrow(frame: Any) -> pa.Table:
    """Return a polars or pandas DataFrame, Arrow table or record batch, or a mapping of columns as an Arrow table.

    Other objects need `to_arrow()` or `__arrow_c_stream__`.

    Raises:
        ConfigError: The type is not supported, or a column mixes types.
    """
    try:
        if isinstance(frame, pa.Table):
            return frame
        if type(frame).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "collect"):
            raise TypeError("it is lazy, and a table is the result of its collect()")
        if hasattr(frame, "get_columns"):
            return pa.table({series.name: _series_to_arrow(series) for series in frame.get_columns()})
        if hasattr(frame, "to_arrow"):
            frame = frame.to_arrow()
        return frame if isinstance(frame, pa.Table) else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"cannot read a {type(frame).__name__} as a table: {error}",
            hint="give a polars or pandas DataFrame or an Arrow table, with one type per column",
        ) from error


def _series_to_arrow(series: Any) -> pa.Array:
    """Return a Polars column as an Arrow array."""
    if str(series.dtype) == "Object":  # exported as memory addresses
        raise TypeError(f"column {series.name!r} has the Polars type Object")
    try:
        return series.alias("column").to_arrow()  # Polars panics at a name with NUL
    except pa.ArrowException as error:
        raise TypeError(f"column {series.name!r} has the Polars type {series.dtype}: {error}") from error


def write_frame(frame: Any, path: Path) -> None:
    """Write a dataframe to a Parquet file in plain types: no dictionaries, no float16, no run-end encoding.

    Raises:
        ConfigError: The frame is not readable, or Parquet has no type for a column.
    """
    table = to_arrow(frame)
    for position, name in enumerate(table.column_names):
        values = table.column(position)
        if is_list(values.type) and values.null_count:  # nulls over elements, from filters in Polars: not in Parquet
            values = values.take(pa.array(np.arange(len(values))))
            table = table.set_column(position, name, values)
        if not _is_storable(values.type):
            table = table.set_column(position, name, _storable(values, position, name))
    pq.write_table(table, path, store_schema=False)


def _storable(values: pa.ChunkedArray, position: int, name: str) -> pa.ChunkedArray:
    """Return a column in a type of Parquet."""
    kind = plain_type(values.type)
    try:
        if _is_storable(kind):
            return to_plain_type(values, kind, name=name, where="the table")
    except DataError:  # Arrow has no cast
        pass
    raise ConfigError(
        f"column {position + 1}, {name!r}, has type {values.type}, and Parquet has no such type",
        hint="cast the column to numbers, text, times or lists of these, or drop it",
    )


def _is_storable(kind: pa.DataType) -> bool:
    """Whether Parquet of any reader has a type; float16 is known to newer ones only."""
    if pa.types.is_float16(kind.value_type if is_list(kind) else kind):
        return False
    try:
        pq.write_table(pa.table({"column": pa.array([], kind)}), pa.BufferOutputStream())
    except pa.ArrowNotImplementedError:
        return False
    return True
