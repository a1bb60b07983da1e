"""Databases opened for reading: DuckDB by itself, SQLite and PostgreSQL through ADBC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.data.copies import table_errors
from recsys_cli.errors import ConfigError, MissingExtraError

_BATCH_ROWS = 100_000
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
    return [(name, _table_query(f"{_quoted(schema)}.{_quoted(name)}", name, address)) for schema, name in pairs]


def _table_query(table: str, name: str, address: str) -> str | None:
    """Return a query for the rows of a table, without columns of structs, as in files; None without others."""
    query = f"SELECT * FROM {table}"  # noqa: S608 (quoted)
    with table_errors(name, secret=address), rows_of(f"{query} LIMIT 0", address, name) as reader:
        kept = [field.name for field in reader.schema if not is_nested(field.type)]
        if len(kept) == len(reader.schema):
            return query
    return f"SELECT {', '.join(map(_quoted, kept))} FROM {table}" if kept else None  # noqa: S608 (quoted)


def is_nested(kind: pa.DataType) -> bool:
    """Whether no model reads values of a type."""
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_interval(kind))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def rows_of(query: str, address: str | None, table: str) -> AbstractContextManager[pa.RecordBatchReader]:
    """Run a query in a database opened for reading.

    Raises:
        ConfigError: The file does not exist, or the address has an unknown scheme.
    """
    if address is None:
        return _by_duckdb(query, ":memory:", {}, table)
    scheme, _, rest = address.partition("://")
    if rest and scheme in {"postgres", "postgresql"}:
        return _by_adbc(
            "postgresql", query, address, table, secret=address, first="SET default_transaction_read_only = on"
        )
    if rest and scheme == "mysql":
        # The first time, DuckDB fetches its extension.
        quoted = address.replace("'", "''")
        attach = f"INSTALL mysql; LOAD mysql; ATTACH '{quoted}' AS database (TYPE mysql, READ_ONLY); USE database;"
        return _by_duckdb(query, ":memory:", {}, table, first=attach, secret=address)
    if rest or not Path(address).is_file():
        what = f"scheme {scheme}" if rest else "file"
        raise ConfigError(f"the database's {what} is unknown", hint="use the path of a file, postgres:// or mysql://")
    if _is_sqlite(Path(address)):
        types_from = {"adbc.sqlite.query.batch_rows": _BATCH_ROWS}
        uri = f"{Path(address).absolute().as_uri()}?mode=ro"
        return _by_adbc("sqlite", query, uri, table, secret=address, options=types_from)
    return _by_duckdb(query, address, {"read_only": True}, table, secret=address)


@contextmanager
def _by_duckdb(
    query: str,
    database: str,
    options: Mapping[str, Any],
    table: str,
    *,
    first: str | None = None,
    secret: str | None = None,
) -> Iterator[pa.RecordBatchReader]:
    import duckdb

    with ExitStack() as stack:
        with table_errors(table, secret=secret):
            connection = stack.enter_context(duckdb.connect(database, **options))
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
    secret: str,
    first: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatchReader]:
    try:
        dbapi = import_module(f"adbc_driver_{driver}.dbapi")
    except ImportError as error:
        raise MissingExtraError.for_extra("lake", what=f"table {table!r}: a query of {driver}") from error
    with ExitStack() as stack:
        with table_errors(table, secret=secret):
            connection = stack.enter_context(dbapi.connect(address))
            cursor = stack.enter_context(connection.cursor(adbc_stmt_kwargs=options))
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
