"""Databases opened for reading: DuckDB by itself, SQLite and PostgreSQL through ADBC."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from recsys_cli.data.copies import table_errors
from recsys_cli.data.selection import SinceValue
from recsys_cli.errors import ConfigError, DataError, MissingExtraError

Result = TypeVar("Result")
_BATCH_ROWS = 100_000
_SECONDS, _CANCELED_SECONDS = 300, 5
_SERVERS = frozenset({"postgres", "postgresql", "mysql"})
_SQLITE = b"SQLite format 3\x00"
_TABLES = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_catalog = current_database() AND table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2
"""
_SQLITE_TABLES = """
SELECT 'main', name FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_' ORDER BY 2
"""


def is_database(address: str) -> bool:
    """Whether a text is the address of a server, or the path of a DuckDB or SQLite file."""
    scheme, _, rest = address.partition("://")
    if rest:
        return scheme in _SERVERS
    return Path(address).is_file() and (_is_sqlite(Path(address)) or _is_duckdb(Path(address)))


def table_queries(address: str) -> list[tuple[str, str | None]]:
    """Return the name of each table of a database, in any schema, and a query for all its rows and its plain columns.

    A table without plain columns has no query.

    Raises:
        DataError: The database is not readable.
        MissingExtraError: Its driver is not installed.
    """
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.for_extra("lake", what="a database") from error
    names = _SQLITE_TABLES if Path(address).is_file() and _is_sqlite(Path(address)) else _TABLES
    with table_errors("database", secret=address), rows_of(names, address, "database") as reader:
        found = reader.read_all()
    pairs = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return [(name, _table_query(f"{quoted(schema)}.{quoted(name)}", name, address)) for schema, name in pairs]


def _table_query(table: str, name: str, address: str) -> str | None:
    """Return a query for the rows of a table, without columns of structs, as in files; None without others."""
    query = f"SELECT * FROM {table}"  # noqa: S608 (quoted)
    with table_errors(name, secret=address), rows_of(f"{query} LIMIT 0", address, name) as reader:
        kept = [field.name for field in reader.schema if not is_nested(field.type)]
        if len(kept) == len(reader.schema):
            return query
    return f"SELECT {', '.join(map(quoted, kept))} FROM {table}" if kept else None  # noqa: S608 (quoted)


def is_nested(kind: pa.DataType) -> bool:
    """Whether no model reads values of a type."""
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_interval(kind))


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Answer:
    """The rows of a query, each batch of them within the time that a database may take."""

    reader: pa.RecordBatchReader
    calls: Calls

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.reader.schema

    def read_all(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(list(self), self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        batches = iter(self.reader)
        while (batch := self.calls.wait(lambda: next(batches, None))) is not None:
            yield batch


@contextmanager
def rows_of(query: str, address: str | None, table: str) -> Iterator[Answer]:
    """Run a query in a database opened for reading.

    Raises:
        ConfigError: The file does not exist, or the address has an unknown scheme.
        DataError: The database is silent for too long.
    """
    calls = Calls(table)
    with ExitStack() as stack:
        opened = _reader_of(query, address, calls)
        try:
            yield Answer(calls.wait(lambda: stack.enter_context(opened)), calls)
        finally:
            if calls.is_stuck:
                stack.pop_all()  # closing waits for the query


@dataclass
class Calls:
    """Calls of a database, each with an end after `RECSYS_QUERY_SECONDS`.

    Attributes:
        table: Name of the table, for errors.
        cancel: Interrupts the query.
        is_stuck: Whether a call goes on in its thread.
    """

    table: str
    cancel: Callable[[], object] | None = None
    is_stuck: bool = False

    def wait(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call.

        Raises:
            DataError: It takes too long.
        """
        seconds = float(os.environ.get("RECSYS_QUERY_SECONDS", _SECONDS))
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        Thread(target=run, daemon=True, name="query").start()
        if not wait([future], seconds).done:
            if self.cancel is not None:
                self.cancel()
            self.is_stuck = not wait([future], _CANCELED_SECONDS).done
            raise DataError(
                f"table {self.table!r}: no rows from its database within {seconds:g} s",
                hint="check that the server answers and that the query ends, for example with a LIMIT; RECSYS_QUERY_SECONDS "
                "sets the time for the next rows",
            )
        return future.result()


def _reader_of(query: str, address: str | None, calls: Calls) -> AbstractContextManager[pa.RecordBatchReader]:
    if address is None:
        return _by_duckdb(query, ":memory:", {}, calls)
    scheme, _, rest = address.partition("://")
    if rest and scheme in {"postgres", "postgresql"}:
        return _by_adbc(
            "postgresql", query, address, calls, secret=address, first="SET default_transaction_read_only = on"
        )
    if rest and scheme == "mysql":
        # The first time, DuckDB fetches its extension.
        quoted = address.replace("'", "''")
        attach = f"INSTALL mysql; LOAD mysql; ATTACH '{quoted}' AS database (TYPE mysql, READ_ONLY); USE database;"
        return _by_duckdb(query, ":memory:", {}, calls, first=attach, secret=address)
    if rest or not Path(address).is_file():
        what = f"scheme {scheme}" if rest else "file"
        raise ConfigError(f"the database's {what} is unknown", hint="use the path of a file, postgres:// or mysql://")
    if _is_sqlite(Path(address)):
        types_from = {"adbc.sqlite.query.batch_rows": _BATCH_ROWS}
        uri = f"{Path(address).absolute().as_uri()}?mode=ro"
        return _by_adbc("sqlite", query, uri, calls, secret=address, options=types_from)
    return _by_duckdb(query, address, {"read_only": True}, calls, secret=address)


@contextmanager
def _by_duckdb(
    query: str,
    database: str,
    options: Mapping[str, Any],
    calls: Calls,
    *,
    first: str | None = None,
    secret: str | None = None,
) -> Iterator[pa.RecordBatchReader]:
    import duckdb

    with ExitStack() as stack:
        with table_errors(calls.table, secret=secret):
            connection = stack.enter_context(duckdb.connect(database, **options))
            calls.cancel = connection.interrupt
            if first is not None:
                connection.execute(first)
        yield connection.sql(query).to_arrow_reader(_BATCH_ROWS)


@contextmanager
def _by_adbc(
    driver: str,
    query: str,
    address: str,
    calls: Calls,
    *,
    secret: str,
    first: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatchReader]:
    try:
        dbapi = import_module(f"adbc_driver_{driver}.dbapi")
    except ImportError as error:
        raise MissingExtraError.for_extra("lake", what=f"table {calls.table!r}: a query of {driver}") from error
    with ExitStack() as stack:
        with table_errors(calls.table, secret=secret):
            connection = stack.enter_context(dbapi.connect(address))
            cursor = stack.enter_context(connection.cursor(adbc_stmt_kwargs=options))
            calls.cancel = cursor.adbc_cancel
            if first is not None:
                cursor.execute(first)
                connection.commit()
        cursor.execute(query)
        yield cursor.fetch_record_batch()


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _is_duckdb(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"


_CHECK = "check the query: its syntax, the names of its tables, columns and files, and your rights to read them"
_ADDRESSES = "export {}=FILE, or an address: postgres://USER:PASSWORD@HOST/NAME"


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
        with table_errors(name, hint=_CHECK):
            statements = duckdb.extract_statements(query)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise ConfigError(f"table {name!r}: the query has to be one SELECT statement", hint="queries read only")

    def identity(self) -> dict[str, object]:
        """Return the query; the version of its rows is the digest of their copy."""
        return {"query": self.query, "database": self.database}

    def num_rows(self) -> int:
        """Return the number of rows, by a count in the database."""
        address = self._address()
        count = f"SELECT count(*) FROM (\n{self.query.rstrip().rstrip(';')}\n) AS counted"  # noqa: S608 (the user's SELECT)
        with table_errors(self.name, secret=address, hint=_CHECK), rows_of(count, address, self.name) as reader:
            return int(reader.read_all().column(0)[0].as_py())

    def batches(self, since: Mapping[str, SinceValue]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:  # noqa: ARG002
        """Return the schema and the rows, in the order of the query.

        Raises:
            DataError: The query fails, or two columns have the same name.
        """
        rows = self._read(self._address())
        return next(rows), rows

    def _read(self, address: str | None) -> Iterator[Any]:
        """Yield the schema, then the batches."""
        with table_errors(self.name, secret=address, hint=_CHECK), rows_of(self.query, address, self.name) as reader:
            names = reader.schema.names
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise DataError(
                    f"table {self.name!r}: the query has the column {', '.join(twice)} twice",
                    hint=f"name the columns: SELECT …, plays.{twice[0]} AS other_name",
                )
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
                hint=_ADDRESSES.format(self.database),
            )
        if "://" not in address and not Path(address).is_file():
            raise ConfigError(
                f"table {self.name!r}: the file in variable {self.database} does not exist",
                hint=_ADDRESSES.format(self.database),
            )
        return address


def _plain(field: pa.Field) -> pa.Field:
    """Return the column of a field in the copy: without zones, and with text or numbers for types of databases.

    Raises:
        DataError: No model reads values of the type.
    """
    own, kind = _database_type(field), field.type
    if own == "uuid":
        kind = pa.string()
    elif own == "numeric":
        kind = pa.float64()
    elif pa.types.is_timestamp(kind):
        kind = pa.timestamp(kind.unit)
    elif is_nested(kind):
        raise DataError(
            f"column {field.name} of the query has values of type {kind}",
            hint=f"leave it out, or convert it: SELECT …, CAST({field.name} AS text)",
        )
    return pa.field(field.name, kind)


def _database_type(field: pa.Field) -> str | None:
    """Return `uuid` or `numeric` for these types of databases: extension types of newer pyarrow, field metadata of older."""
    if isinstance(field.type, pa.BaseExtensionType):
        name, details = field.type.extension_name, str(field.type)
    else:
        metadata = field.metadata or {}
        name = metadata.get(b"ARROW:extension:name", b"").decode()
        details = metadata.get(b"ARROW:extension:metadata", b"").decode()
    if name == "arrow.uuid":
        return "uuid"
    return "numeric" if name == "arrow.opaque" and "numeric" in details else None


def _values(column: pa.Array, given: pa.Field, wanted: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if _database_type(given) == "uuid":
        return pa.array(
            [None if value is None else str(UUID(bytes=value)) for value in column.to_pylist()], pa.string()
        )
    return column.cast(wanted.type)
