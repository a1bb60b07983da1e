"""Assigns roles (user, item, rating, label, timestamp) to the columns of a table by common column names."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Common column names by role, without case, underscores and spaces, in order of preference.
_COMMON_NAMES = {
    "user": "userid user customerid customer uid visitorid sessionid memberid reviewerid",
    "item": "itemid item movieid productid product articleid asin iid sku trackid bookid",
    "label": "label clicked click liked like target purchased isclick",
    "rating": "rating stars score overall",
    "timestamp": "timestamp time ts unixreviewtime eventtime",
}


@dataclass(frozen=True)
class FilePreview:
    """Header of a file, and its first row as text; empty for a table without rows."""

    path: Path
    header: tuple[str, ...]
    first: tuple[str, ...]

    def is_time(self, column: str) -> bool:
        """Whether the first value is a number or an ISO date: both are parsed without a format."""
        first = self.first[self.header.index(column)] if self.first else ""
        return self.is_number(column) or re.match(r"\d{4}-\d\d-\d\d", first) is not None

    def is_number(self, column: str) -> bool:
        """Whether the first value is a number, or missing."""
        if not self.first:
            return True
        try:
            float(self.first[self.header.index(column)])
        except (ValueError, IndexError):
            return False
        return True


def preview(path: Path) -> FilePreview:
    """Read the header and the first row of a CSV, TSV or parquet file.

    Raises:
        ConfigError: The file does not exist, or is not a table.
    """
    if not path.is_file():
        raise ConfigError(f"no file {path}", hint=f"paths are relative to {Path.cwd()}")
    if path.suffix.lower() == ".parquet":
        return _preview_parquet(path)
    if path.suffix.lower() not in _SEPARATORS:
        raise ConfigError(f"{path}: unknown table format", hint="use a .csv, .tsv or .parquet file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=_SEPARATORS[path.suffix.lower()])
            names, values = [*itertools.islice(rows, 2), [], []][:2]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a UTF-8 table: {error}") from error
    if len(names) < 2:
        raise ConfigError(f"{path}: the header needs at least two columns, and has {names}")
    return FilePreview(path, tuple(names), tuple(values))


def _preview_parquet(path: Path) -> FilePreview:
    import pyarrow.lib
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(batch_size=1), None)
            header = tuple(file.schema_arrow.names)
    except (pyarrow.lib.ArrowException, OSError) as error:
        raise ConfigError(f"{path}: not a parquet file, or one with a type unknown to pyarrow: {error}") from error
    first = tuple(str(column[0].as_py()) for column in batch.columns) if batch and batch.num_rows else ()
    return FilePreview(path, header, first)


def assign_roles(table: FilePreview, given: dict[str, str | None]) -> dict[str, str | None]:
    """Return the column of each role, from the options or by common names.

    User, item, and either rating or label are always assigned.

    Raises:
        ConfigError: A column does not exist or has the wrong type, or a required role cannot be guessed.
    """
    problems = [
        f"--{role} {column}: no such column{suggest(column, table.header)}"
        for role, column in given.items()
        if column is not None and column not in table.header
    ]
    if not problems:
        roles = {role: column or _guess(role, table, given) for role, column in given.items()}
        if roles["label"]:
            roles["rating"] = None
        if roles["timestamp"] and not given["timestamp"] and not table.is_time(roles["timestamp"]):
            roles["timestamp"] = None  # may need a format
        problems = [*_missing(roles), *_not_numeric(table, roles)]
    if problems:
        raise ConfigError("\n  ".join([f"{table.path}:", *problems]), hint=f"its columns are {', '.join(table.header)}")
    return roles


def _missing(roles: dict[str, str | None]) -> list[str]:
    missing = [role for role in ("user", "item") if not roles[role]]
    problems = [f"cannot guess the {role} column; set it with --{role}" for role in missing]
    if not (roles["rating"] or roles["label"]):
        problems.append("cannot guess the rating or label column; set it with --rating or --label")
    return problems


def _not_numeric(table: FilePreview, roles: dict[str, str | None]) -> list[str]:
    numbers = {role: roles[role] for role in ("rating", "label")}
    return [
        f"the {role} column {column!r} has to be numeric"
        for role, column in numbers.items()
        if column and not table.is_number(column)
    ]


def _guess(role: str, table: FilePreview, given: dict[str, str | None]) -> str | None:
    if role in {"rating", "label"} and (given["rating"] or given["label"]):
        return None
    columns = {column.lower().replace("_", "").replace(" ", ""): column for column in reversed(table.header)}
    taken = set(given.values())
    names = _COMMON_NAMES[role].split()
    return next((columns[name] for name in names if name in columns and columns[name] not in taken), None)
