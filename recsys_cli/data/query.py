"""SQL queries: one SELECT, read-only, over files through DuckDB or in a database named by the environment.

DuckDB reads files and its own databases; SQLite and PostgreSQL run the query themselves, through ADBC.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from recsys_cli.data.copies import table_errors
from recsys_cli.data.databases import is_nested, rows_of
from recsys_cli.data.since import SinceValue
from recsys_cli.errors import ConfigError, DataError, MissingExtraError

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
