"""Rows of a table after reading: an element of a list per row, and the number of each row."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawTable
from recsys_cli.errors import DataError
from recsys_cli.features.spec import is_list


def reshaped_schema(schema: pa.Schema, table: RawTable, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema after `explode` and `order`.

    Raises:
        DataError: The exploded column holds no lists, or the name of the order is taken.
    """
    if table.explode is None and table.order is None:
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
    if table.order is not None:
        if table.order in fields:
            raise DataError(f"table {table.name!r}: order: the table has a column {table.order!r}; choose another name")
        fields[table.order] = pa.field(table.order, pa.int64())
    return pa.schema([fields[name] for name in columns] if columns is not None else list(fields.values()))


def reshaped(batches: Iterable[pa.Table], table: RawTable, columns: Sequence[str] | None) -> Generator[pa.Table]:
    """Yield the batches with a row per element of the list column `explode`, numbered by `order`; nulls and empty texts go."""
    if table.explode is None and table.order is None:
        yield from batches
        return
    first = 0
    for batch in batches:
        rows = batch if table.explode is None else _exploded(batch, table.explode)
        if table.order is not None:
            rows = rows.append_column(table.order, pa.array(np.arange(first, first + rows.num_rows)))
        first += rows.num_rows
        yield rows if columns is None else rows.select(list(columns))


def _exploded(rows: pa.Table, name: str) -> pa.Table:
    parts = []
    for batch in rows.to_batches():
        lists = batch.column(name)
        elements, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
        keep = pc.is_valid(elements)
        if pa.types.is_string(elements.type):
            keep = pc.and_(keep, pc.fill_null(pc.not_equal(elements, ""), False))
        taken = pa.Table.from_batches([batch]).drop_columns([name]).take(parents.filter(keep))
        part = taken.append_column(name, pa.chunked_array([elements.filter(keep)]))
        parts.append(part.select(rows.column_names))
    if not parts:
        fields = [field if field.name != name else pa.field(name, field.type.value_type) for field in rows.schema]
        return pa.schema(fields).empty_table()
    return pa.concat_tables(parts)
