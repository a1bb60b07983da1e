"""A chunk of text to a table: the fast way, and, where that stumbles, row by row, so that every bad row is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.bad_rows import NO_UTF_8, BadRow, sift
from recsys_cli.etl.reading.csv_chunks import Chunk
from recsys_cli.etl.reading.dialect import ARROW_TYPES, field_types, read_text, to_plain, with_separators
from recsys_cli.etl.reading.plain_types import plain_type
from recsys_cli.etl.reading.times import to_times

_SHOWN = 10


@dataclass(frozen=True)
class Parsed:
    """What a chunk holds.

    Attributes:
        rows: The good rows.
        bad: The others.
    """

    rows: pa.Table
    bad: Sequence[BadRow] = ()


def parse(
    chunk: Chunk,
    columns: Sequence[str] | None,
    *,
    skip_bad: bool = False,
    every_row: bool = False,
    times: Collection[str] = (),
) -> Parsed:
    """Read a chunk.

    Args:
        chunk: The text.
        columns: Names to keep, in order; None for all.
        skip_bad: Return bad rows, instead of stopping at them.
        every_row: No row may be left out and types are given, so the error proposes neither.
        times: Columns that have to be times, for the error to say it.

    Raises:
        DataError: A row is bad and bad rows are not skipped.
    """
    table = chunk.table
    names = [column.name for column in table.columns]
    wanted = names if columns is None else _needed(columns, table)
    kinds = field_types(table)
    types = {name: kinds[name] for name in wanted}
    if not chunk.text:
        return Parsed(_finished(_with_times(pa.schema(list(types.items())).empty_table(), table), table, columns))
    text = to_plain(chunk.text, table)
    rows = _fast(text, table, types)
    bad: list[BadRow] = []
    if rows is None:
        line = chunk.lines.at(chunk.offset)
        rows, bad = sift(text, table, types=types, first_line=line, file=chunk.file)
        if bad and not skip_bad:
            raise _error(bad, table, times, every_row=every_row)
        rows = _with_times(rows, table)
    return Parsed(_finished(rows, table, columns), bad)


def _fast(text: bytes | bytearray, table: RawTable, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Read a plain text; None where a row is bad."""
    try:
        rows = _with_times(read_text(text, table, types), table)
    except pa.ArrowInvalid:
        return None
    required = [column.name for column in table.columns if not column.nullable and column.name in types]
    return None if any(rows.column(name).null_count for name in required) else rows


def _with_times(rows: pa.Table, table: RawTable) -> pa.Table:
    """Return rows with columns of times as times.

    Raises:
        NotATimeError: A text is none.
    """
    for column in table.columns:
        if column.time is not None and column.name in rows.column_names:
            place = rows.column_names.index(column.name)
            rows = rows.set_column(place, column.name, to_times(rows.column(place), column.time))
    return rows


def _needed(columns: Sequence[str], table: RawTable) -> list[str]:
    """Return the fields to take from the file: the columns asked for, and the flags that lists are made from."""
    names = {column.name for column in table.columns}
    flags = [flag for name in columns for flag in table.flags.get(name, ())]
    return [name for name in columns if name in names] + flags


def _error(bad: Sequence[BadRow], table: RawTable, times: Collection[str], *, every_row: bool) -> DataError:
    shown = "\n".join(f"  {row}" for row in bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more near there" if len(bad) > _SHOWN else ""
    hint = "mend the file, or leave such rows out with etl.on_bad_rows=skip"
    if every_row:
        hint = "mend the file: every row of it is prepared, in its order and with the types of the prepared data"
    elif mistyped := [column for column in table.columns if column.nullable and column.name in {r.column for r in bad}]:
        guessed = ", ".join(f"{column.name} {column.time or column.dtype}" for column in mistyped)
        first = mistyped[0]
        option = f"times: {{{first.name}: FORMAT}}" if first.name in times else f"types: {{{first.name}: string}}"
        hint += (
            f"; types come from the first rows ({guessed}), where the dataset does not say others "
            f"({option} beside the table's files)"
        )
    if any(row.reason.endswith(NO_UTF_8) for row in bad):
        hint += "; for letters of another encoding say encoding: latin-1 beside the table's files"
    return DataError(f"rows that cannot be read:\n{shown}{more}", hint=hint)


def _finished(rows: pa.Table, table: RawTable, columns: Sequence[str] | None) -> pa.Table:
    """Split list columns, gather flags, and bring the columns into the order asked for."""
    for position, name in enumerate(rows.column_names):
        column = next(column for column in table.columns if column.name == name)
        values = with_separators(rows.column(name), table)
        values = values if column.separator is None else split(values, column)
        rows = rows.set_column(position, name, values.cast(plain_type(values.type)))
    for name, flags in table.flags.items():
        if set(flags) <= set(rows.column_names):
            lists = _from_flags(rows.select(list(flags)))
            rows = rows.drop_columns(list(flags)).append_column(name, lists)
    return rows.select(list(columns)) if columns is not None else rows


def split(texts: pa.ChunkedArray, column: RawColumn) -> pa.ChunkedArray:
    """Cut texts into the lists that they are.

    Raises:
        DataError: An element has not the type that was said of it.
    """
    lists = pc.split_pattern(texts.cast(pa.string()), str(column.separator))
    empty = pc.fill_null(pc.equal(texts, column.empty or ""), False)
    lists = pc.if_else(empty, pa.scalar([], type=lists.type), lists)
    try:
        return lists.cast(pa.list_(ARROW_TYPES[column.dtype or "string"]))
    except pa.ArrowInvalid as error:
        raise DataError(f"column {column.name}: an element of a list is not {column.dtype}: {error}") from error


def _from_flags(flags: pa.Table) -> pa.Array:
    rows = zip(*(flags.column(name).to_pylist() for name in flags.column_names), strict=True)
    lists = [[name for name, flag in zip(flags.column_names, row, strict=True) if flag] for row in rows]
    return pa.array(lists, pa.list_(pa.string()))
