"""Copies of the user's tables in lakes and databases: Delta, Iceberg and SQL queries, as Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from recsys_cli.data.fetch import file_digest
from recsys_cli.data.raw_files import holds_secret
from recsys_cli.data.selection import SinceValue, check_columns
from recsys_cli.errors import DataError, RecsysError
from recsys_cli.events import Emit, Progress
from recsys_cli.packages import pa, pq

if TYPE_CHECKING:
    from recsys_cli.data.options import TableOptions

_ROW_GROUP_BYTES, _MAX_MESSAGE = 64 << 20, 300
_ACCESS = "check its address, its files and your access rights; credentials come from the environment alone"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class CopiedTable(Protocol):
    """A table of a lake or a database."""

    def identity(self) -> dict[str, object]:
        """Return the address and the version, as JSON values."""

    def num_rows(self) -> int:
        """Return the number of rows; deleted ones of lakes may count."""

    def batches(self, since: Mapping[str, SinceValue]) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        """Return the schema and the rows, in an order fixed by the version; files with earlier rows only may be left out."""


def open_table(name: str, options: TableOptions) -> CopiedTable:
    """Open a table of a lake or a database.

    Raises:
        ConfigError: The environment has no address of the database.
        DataError: The table does not exist, or is unreachable.
        MissingExtraError: The package is not installed.
    """
    kind = options.copied_as
    if kind == "delta":
        from recsys_cli.data.lakes import DeltaSnapshot

        return DeltaSnapshot(name, options.files[0], options.version)
    if kind == "iceberg":
        from recsys_cli.data.lakes import IcebergSnapshot

        return IcebergSnapshot(name, options.files[0], options.version)
    from recsys_cli.data.databases import Query

    return Query(name, str(options.query), options.database)


def copy(
    name: str, table: CopiedTable, path: Path, emit: Emit, *, since: Mapping[str, SinceValue]
) -> dict[str, object]:
    """Write a table's rows to a Parquet file; return its version, rows and digest.

    Raises:
        ConfigError: The table lacks a column of `since`.
        DataError: The table is not readable.
    """
    rows = 0
    with table_errors(name):
        schema, batches = table.batches(since)
        check_columns(name, since, schema.names)
        with pq.ParquetWriter(path, schema, store_schema=False) as file:
            for group in _row_groups(schema, batches):
                file.write_table(group)
                rows += group.num_rows
                emit(Progress("copy", rows, None))
    emit(Progress("copy", rows, rows))
    return {**table.identity(), "rows": rows, "sha256": file_digest(path, "sha256")}


def copy_head(name: str, table: CopiedTable, path: Path, rows: int, *, since: Mapping[str, SinceValue]) -> int:
    """Write a table's first rows, earlier ones included, to a Parquet file; return the number of all rows.

    Raises:
        ConfigError: The table lacks a column of `since`.
        DataError: The table is not readable.
    """
    written = 0
    with table_errors(name):
        schema, batches = table.batches({})
        check_columns(name, since, schema.names)
        with pq.ParquetWriter(path, schema, store_schema=False) as file:
            for batch in batches:
                file.write_batch(batch.slice(0, rows - written))
                written += min(batch.num_rows, rows - written)
                if written >= rows:
                    return max(written, table.num_rows())
    return written


@contextmanager
def table_errors(name: str, *, secret: str | None = None, hint: str = _ACCESS) -> Iterator[None]:
    """Convert errors of other packages into errors with the table's name and a hint, without the secret.

    Raises:
        DataError: The table is not readable.
    """
    try:
        yield
    except (RecsysError, MemoryError):
        raise
    except Exception as error:
        text = " ".join(_COLOR.sub("", str(error)).split()) or type(error).__name__
        if secret is not None:
            text = text.replace(secret, "…")
        if holds_secret(text):
            text = "the message of its package holds a secret"
        raise DataError(
            f"table {name!r} cannot be read: {text[:_MAX_MESSAGE]}",
            hint=hint,
        ) from (error if secret is None else None)


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending, schema)
            pending, size = [], 0
    yield pa.Table.from_batches(pending, schema)
