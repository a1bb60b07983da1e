"""Titles and raw values of items: columns of raw tables, read on demand and absent from the prepared data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.config import RunConfig
from recsys_cli.data import open_source
from recsys_cli.errors import ConfigError, RecsysError, listed
from recsys_cli.etl.reading.reader import Reader, reader_of
from recsys_cli.features.spec import is_list
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import INTERACTIONS

_DEFAULT_NAMES = ("title", "name")
"""Default names of a title column."""


def read_titles(config: RunConfig, raw: Path, ids: pa.Array, *, title: str | None) -> pa.Array | None:
    """Return item titles from the first raw table with the item ids and a title column.

    Missing or moved raw data is no error: the ids serve as labels instead. The interactions, possibly a long table, are
    only read for an explicit `title` (`evaluate.title`); the default is `title` or `name` of a dimension table.

    Returns:
        Strings, null for items without a title; shape (I,). None if no readable table has titles.

    Raises:
        ConfigError: No readable table has both the item ids and the column of `evaluate.title`.
    """
    key = config.features.raw_name(config.features.item)
    columns: list[str] = []
    for table in _tables(config, raw, dimension_only=title is None):
        names = table.schema().names
        if key not in names:
            continue
        columns += [name for name in names if name != key]
        matches = [name for name in names if (name == title if title is not None else name.lower() in _DEFAULT_NAMES)]
        if matches:
            return _titles_of(table, (key, matches[0]), ids)
    if title is not None and columns:
        raise ConfigError(
            f"evaluate.title: no table with {key} has a column {title!r}; the columns are {listed(columns)}",
            hint="name one of them, or remove evaluate.title",
        )
    return None


def _tables(config: RunConfig, raw: Path, *, dimension_only: bool) -> Iterator[Reader]:
    """Yield readers of the readable tables, dimension tables first."""
    try:
        tables = open_source(config.dataset.name, config.dataset.options).tables(raw)
    except RecsysError:
        return
    for table in sorted(tables, key=lambda table: table.name == INTERACTIONS):
        if dimension_only and table.name == INTERACTIONS:
            continue
        reader = replace(reader_of(config, replace(table, since={})), skip_bad=True)
        try:
            reader.schema()
        except RecsysError:
            continue
        yield reader


def _titles_of(reader: Reader, columns: tuple[str, str], ids: pa.Array) -> pa.Array | None:
    reader.columns, reader.ids = columns, columns[:1]
    titles = pa.nulls(len(ids), pa.string())
    try:
        for rows in reader.batches():
            texts = rows[1].cast(pa.string())
            is_text = pc.not_equal(pc.utf8_trim_whitespace(texts), "").fill_null(False)
            keys = rows[0].filter(is_text).cast(ids.type).combine_chunks()
            positions = pc.index_in(ids, value_set=keys)
            titles = pc.coalesce(titles, texts.filter(is_text).take(positions).combine_chunks())
            if not titles.null_count:
                break
    except (RecsysError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # a truncated file, ids of another type than in the interactions, or lists as titles
    return titles


def read_item_values(
    config: RunConfig, raw: Path, ids: pa.Array, fitted: FittedPlan
) -> tuple[pa.Table | None, pa.Array | None]:
    """Return the raw values of items by joined column, without lists, and whether a joined table lists them; by id.

    Returns:
        The columns, null for items without a row; None without such columns, or without a readable table. And a mask of the
        items with a row in a table; None without a joined table, or without a readable one.
    """
    key = config.features.item
    columns: dict[str, pa.ChunkedArray] = {}
    listed: pa.Array | None = None
    for op in (op for _, op in fitted.program.joins if op.on == key):
        types = {name: fitted.inputs[op.table].field(name).type for name in op.columns}
        names = [name for name, kind in types.items() if not is_list(kind)]
        try:
            tables = open_source(config.dataset.name, config.dataset.options).tables(raw)
            reader = reader_of(config, next(table for table in tables if table.name == op.table))
            reader.columns, reader.ids = (op.on, *names), (op.on,)
            rows = reader.read()
            positions = pc.index_in(ids, value_set=rows[0].cast(ids.type))
            columns |= {name: rows[name].cast(types[name]).take(positions) for name in names}
        except (RecsysError, StopIteration, pa.ArrowException):
            return None, None
        listed = positions.is_valid() if listed is None else pc.or_(listed, positions.is_valid())
    return pa.table(columns).combine_chunks() if columns else None, listed
