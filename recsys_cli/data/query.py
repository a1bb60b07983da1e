"""SQL queries: one SELECT, read-only, over files through DuckDB or in a database named by the environment.

DuckDB reads files and its own databases; SQLite and PostgreSQL run the query themselves, through ADBC.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from recsys_cli.data.copies import table_errors
from recsys_cli.data.since import SinceValue
from recsys_cli.errors import ConfigError, DataError, MissingExtraError

_BATCH_ROWS = 100_000
_SQLITE = b"SQLite format 3\x00"
_EXTENSION = b"ARROW:extension:name"


class Query:
    """The rows of a SELECT statement.

    Attributes:
        database: Environment variable with the address of the database; None for files only.
    """

    def __init__(self, name: str, query: str, database: str | None) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError.for_extra("lake", what=f"table {name!r}: a query") from error
        self.name, self.query, self.database = name, query, database
        with table_errors(name):
            statements = duckdb.extract_statements(query)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise ConfigError(f"table {name!r}: the query has to be one SELECT statement", hint="queries read only")

    def identity(self) -> dict[str, object]:
        """Return the query; the version of its rows is the digest of their copy."""
        return {"query": self.query, "database": self.database}

    def batches(self, since: Mapping[str, SinceValue]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:  # noqa: ARG002
        """Return the schema and the rows, in the order of the query."""
        rows = self._read(self._address())
        return next(rows), rows

    def _read(self, address: str | None) -> Iterator[Any]:
        """Yield the schema, then the batches."""
        with table_errors(self.name, secret=address), _rows(self.query, address, self.name) as reader:
            schema = pa.schema([_plain(field) for field in reader.schema])
            yield schema
            for batch in reader:
                yield pa.record_batch([*map(_values, batch.columns, reader.schema, schema)], schema)

    def _address(self) -> str | None:
        if self.database is None:
            return None
        address = os.environ.get(self.database)
        if not address:
            raise ConfigError(
                f"table {self.name!r}: the environment has no {self.database}, the database of its query",
                hint=f"export {self.database}=FILE, or an address: postgres://USER:PASSWORD@HOST/NAME",
            )
        return address


def _rows(query: str, address: str | None, table: str) -> AbstractContextManager[pa.RecordBatchReader]:
    """Run a query in a database opened for reading.

    Raises:
        ConfigError: The file does not exist, or the address has an unknown scheme.
    """
    if address is None:
        return _by_duckdb(query, ":memory:", {})
    scheme, _, rest = address.partition("://")
    if rest and scheme in {"postgres", "postgresql"}:
        return _by_adbc("postgresql", query, address, table, first="SET default_transaction_read_only = on")
    if rest and scheme == "mysql":
        # The first time, DuckDB fetches its extension.
        quoted = address.replace("'", "''")
        attach = f"INSTALL mysql; LOAD mysql; ATTACH '{quoted}' AS database (TYPE mysql, READ_ONLY); USE database;"
        return _by_duckdb(query, ":memory:", {}, first=attach)
    if rest or not Path(address).is_file():
        what = f"scheme {scheme}" if rest else "file"
        raise ConfigError(f"the database's {what} is unknown", hint="use the path of a file, postgres:// or mysql://")
    if _is_sqlite(Path(address)):
        types_from = {"adbc.sqlite.query.batch_rows": _BATCH_ROWS}
        return _by_adbc("sqlite", query, f"{Path(address).absolute().as_uri()}?mode=ro", table, options=types_from)
    return _by_duckdb(query, address, {"read_only": True})


@contextmanager
def _by_duckdb(
    query: str, database: str, options: Mapping[str, Any], *, first: str | None = None
) -> Iterator[pa.RecordBatchReader]:
    import duckdb

    with duckdb.connect(database, **options) as connection:
        if first is not None:
            connection.execute(first)
        yield connection.sql(query).to_arrow_reader(_BATCH_ROWS)


@contextmanager
def _by_adbc(
    driver: str,
    query: str,
    address: str,
    table: str,
    *,
    first: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatchReader]:
    try:
        dbapi = import_module(f"adbc_driver_{driver}.dbapi")
    except ImportError as error:
        raise MissingExtraError.for_extra("lake", what=f"table {table!r}: a query of {driver}") from error
    with dbapi.connect(address) as connection, connection.cursor(adbc_stmt_kwargs=options) as cursor:
        if first is not None:
            cursor.execute(first)
            connection.commit()
        cursor.execute(query)
        yield cursor.fetch_record_batch()


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _plain(field: pa.Field) -> pa.Field:
    """Return the column of a field in the copy: without zones, and with text or numbers for types of databases.

    Raises:
        DataError: No model reads values of the type.
    """
    own, kind = (field.metadata or {}).get(_EXTENSION), field.type
    if own == b"arrow.uuid":
        kind = pa.string()
    elif own == b"arrow.opaque" and b'"numeric"' in field.metadata[b"ARROW:extension:metadata"]:
        kind = pa.float64()
    elif pa.types.is_timestamp(kind):
        kind = pa.timestamp(kind.unit)
    elif pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_interval(kind):
        raise DataError(
            f"column {field.name} of the query has values of type {kind}",
            hint=f"leave it out, or convert it: SELECT …, CAST({field.name} AS text)",
        )
    return pa.field(field.name, kind)


def _values(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    if (given.metadata or {}).get(_EXTENSION) == b"arrow.uuid":
        return pa.array(
            [None if value is None else str(UUID(bytes=value)) for value in column.to_pylist()], pa.string()
        )
    return column.cast(wanted.type)
