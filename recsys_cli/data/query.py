"""SQL queries through DuckDB: one SELECT, read-only, over files or a database named by the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.data.copies import table_errors
from recsys_cli.data.since import SinceValue
from recsys_cli.errors import ConfigError, MissingExtraError

_BATCH_ROWS = 100_000
_SERVERS = {"postgres": "postgres", "postgresql": "postgres", "mysql": "mysql"}
_TABLES = """
SELECT table_name, format('SELECT * FROM "{}"."{}"', replace(table_schema, '"', '""'), replace(table_name, '"', '""'))
FROM information_schema.tables
WHERE table_catalog = current_database() AND table_schema NOT IN ('information_schema', 'pg_catalog')
ORDER BY ALL
"""
_SQLITE = b"SQLite format 3\x00"


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

    def num_rows(self) -> int:
        """Return the number of rows, by a count in the database."""
        address = self._address()
        with table_errors(self.name, secret=address):
            return int(_connected(address).sql(self.query).aggregate("count(*)").fetchall()[0][0])

    def batches(self, since: Mapping[str, SinceValue]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:  # noqa: ARG002
        """Return the schema and the rows, in the order of the query."""
        address = self._address()
        with table_errors(self.name, secret=address):
            reader = _connected(address).sql(self.query).to_arrow_reader(_BATCH_ROWS)
        return reader.schema, self._rows(reader, address)

    def _rows(self, reader: pa.RecordBatchReader, address: str | None) -> Iterator[pa.RecordBatch]:
        with table_errors(self.name, secret=address):
            yield from reader

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


def is_database(address: str) -> bool:
    """Whether a text is the address of a server, or the path of a DuckDB or SQLite file."""
    scheme, _, rest = address.partition("://")
    if rest:
        return scheme in _SERVERS
    if not Path(address).is_file():
        return False
    with Path(address).open("rb") as file:
        start = file.read(len(_SQLITE))
    return start == _SQLITE or start[8:12] == b"DUCK"


def table_queries(address: str) -> dict[str, str]:
    """Return a query for all rows of each table of a database, by the table's name.

    Raises:
        DataError: The database is not readable.
    """
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.for_extra("lake", what="a database") from error
    with table_errors("database", secret=address):
        names = _connected(address).sql(_TABLES).fetchall()
    return {str(name): str(query) for name, query in names}


def _connected(address: str | None) -> Any:
    """Open a database for reading.

    Raises:
        ConfigError: The file does not exist, or the address has an unknown scheme.
    """
    import duckdb

    if address is None:
        return duckdb.connect()
    scheme, _, rest = address.partition("://")
    kind = _SERVERS.get(scheme) if rest else None
    if kind is None:
        if rest or not Path(address).is_file():
            what = f"scheme {scheme}" if rest else "file"
            raise ConfigError(
                f"the database's {what} is unknown", hint=f"use the path of a file, or {'://, '.join(_SERVERS)}://"
            )
        with Path(address).open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                return duckdb.connect(address, read_only=True)
        kind = "sqlite"
    connection = duckdb.connect()
    connection.execute(f"INSTALL {kind}; LOAD {kind};")  # the first time, DuckDB fetches its extension
    quoted = address.replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS database (TYPE {kind}, READ_ONLY); USE database;")
    return connection
