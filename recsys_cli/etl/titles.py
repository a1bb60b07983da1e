"""What people call the items: a column of a raw table, which the prepared data does not keep.

It is read when somebody reads titles, so preparing data costs nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.config import RunConfig
from recsys_cli.data import open_source
from recsys_cli.errors import ConfigError, RecsysError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.features.program import INTERACTIONS

_USUAL = ("title", "name")
"""What a column with titles is called where the config does not say."""


def read_titles(config: RunConfig, raw: Path, ids: pa.Array, *, title: str | None) -> pa.Array | None:
    """Return what items are called, by the first table beside the interactions that has their ids and a title.

    The interactions themselves are read for titles only where `title` names a column of theirs: they may be long. Raw data may
    be gone or moved by now, and titles are a comfort: without them there are ids to show.

    Args:
        config: Its dataset, and the column with the ids of the items.
        raw: The folder of the downloaded dataset.
        ids: Raw ids of the items; shape (I,).
        title: `evaluate.title`, the column with the titles; None for one of a table beside the interactions that is called
            title or name.

    Returns:
        Text, null where an item has none; shape (I,). None where no table has titles, or none can be read.

    Raises:
        ConfigError: `evaluate.title` names a column that no readable table has beside the ids of the items.
    """
    key = config.features.raw_name(config.features.item)
    beside: list[str] = []
    for table in _tables(config, raw, beside_only=title is None):
        names = table.schema().names
        if key not in names:
            continue
        beside += [name for name in names if name != key]
        known = [name for name in names if (name == title if title is not None else name.lower() in _USUAL)]
        if known:
            return _matched(table, (key, known[0]), ids)
    if title is not None and beside:
        raise ConfigError(
            f"evaluate.title: no table has a column {title!r} beside {key}; there are {', '.join(beside)}",
            hint="leave it out to go without titles",
        )
    return None


def _tables(config: RunConfig, raw: Path, *, beside_only: bool) -> Iterator[Reader]:
    """Yield readers of the tables that are there and can be read: those beside the interactions, and then the interactions."""
    try:
        tables = open_source(config.dataset.name, config.dataset.options).tables(raw)
    except RecsysError:
        return
    for table in sorted(tables, key=lambda table: table.name == INTERACTIONS):
        if beside_only and table.name == INTERACTIONS:
            continue
        reader = Reader(table, skip_bad=True)
        try:
            reader.schema()
        except RecsysError:
            continue
        yield reader


def _matched(reader: Reader, columns: tuple[str, str], ids: pa.Array) -> pa.Array | None:
    """Return the second column's text in the order of the ids, which are in the first: the first that an id has in the table."""
    reader.columns = columns
    found = pa.nulls(len(ids), pa.string())
    try:
        for rows in reader.batches():
            texts = rows[1].cast(pa.string())
            is_text = pc.not_equal(pc.utf8_trim_whitespace(texts), "").fill_null(False)
            keys = rows[0].filter(is_text).cast(ids.type).combine_chunks()
            positions = pc.index_in(ids, value_set=keys)
            found = pc.coalesce(found, texts.filter(is_text).take(positions).combine_chunks())
            if not found.null_count:
                break
    except (RecsysError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # a file that breaks off, ids of another kind than those of the interactions, titles that are lists
    return found
