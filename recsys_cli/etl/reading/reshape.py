"""Rows of a table after reading: an element of a list per row, and the number of each row."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.since import least, mask, nothing_new, span
from recsys_cli.data.source import RawTable
from recsys_cli.errors import DataError
from recsys_cli.features.spec import is_list

if TYPE_CHECKING:
    from recsys_cli.etl.reading.reader import Reader


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


def recent(tables: Iterable[pa.Table], limits: Mapping[str, pa.Scalar], table: RawTable) -> Generator[pa.Table]:
    """Yield the rows that reach all limits.

    Raises:
        DataError: There are none.
    """
    count = 0
    for rows in tables:
        kept = rows.filter(reduce(pc.and_, (mask(rows[name], limit) for name, limit in limits.items())))
        count += kept.num_rows
        yield kept
    if not count:
        raise nothing_new(table.name, table.since)
