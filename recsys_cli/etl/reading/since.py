"""The rows of a table since a moment, without earlier ones."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.since import least, mask, nothing_new, span
from recsys_cli.data.source import RawTable

if TYPE_CHECKING:
    from recsys_cli.etl.reading.reader import Reader


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
