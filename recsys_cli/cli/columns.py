"""Which column of a table is the user, the item, the rating: by what people call them."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Headings that people give these columns, without case, underscores and spaces; the first that is there is taken.
_USUAL = {
    "user": ("userid", "user", "customerid", "customer", "uid", "visitorid", "sessionid", "memberid", "reviewerid"),
    "item": (
        "itemid",
        "item",
        "movieid",
        "productid",
        "product",
        "articleid",
        "asin",
        "iid",
        "sku",
        "trackid",
        "bookid",
    ),
    "label": ("label", "clicked", "click", "liked", "like", "target", "purchased", "isclick"),
    "rating": ("rating", "stars", "score", "overall"),
    "timestamp": ("timestamp", "time", "ts", "unixreviewtime", "eventtime"),
}


@dataclass(frozen=True)
class FilePreview:
    """What a look at a file shows.

    Attributes:
        path: The file.
        header: Names of its columns.
        first: Its first row, as text; empty where it has none.
    """

    path: Path
    header: tuple[str, ...]
    first: tuple[str, ...]

    def is_time(self, column: str) -> bool:
        """Whether the first row has a number or an ISO date there, which are read without another word."""
        first = self.first[self.header.index(column)] if self.first else ""
        return self.is_number(column) or re.match(r"\d{4}-\d\d-\d\d", first) is not None

    def is_number(self, column: str) -> bool:
        """Whether the first row has a number there."""
        if not self.first:
            return True
        try:
            float(self.first[self.header.index(column)])
        except (ValueError, IndexError):
            return False
        return True


def peek(path: Path) -> FilePreview:
    """Read the header and the first row of a CSV, TSV or parquet file.

    Raises:
        ConfigError: There is no such file, or it is no such table.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint=f"paths are relative to {Path.cwd()}")
    if path.suffix.lower() == ".parquet":
        return _peek_parquet(path)
    if path.suffix.lower() not in _SEPARATORS:
        raise ConfigError(f"{path}: cannot tell what kind of table this is", hint="name it .csv, .tsv or .parquet")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=_SEPARATORS[path.suffix.lower()])
            names, values = [*itertools.islice(rows, 2), [], []][:2]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a UTF-8 table: {error}") from error
    if len(names) < 2:
        raise ConfigError(f"{path}: its first line does not name two columns or more: {names}")
    return FilePreview(path, tuple(names), tuple(values))


def _peek_parquet(path: Path) -> FilePreview:
    import pyarrow.lib
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(batch_size=1), None)
            header = tuple(file.schema_arrow.names)
    except pyarrow.lib.ArrowException as error:
        raise ConfigError(f"{path}: not a parquet file: {error}") from error
    first = tuple(str(column[0].as_py()) for column in batch.columns) if batch and batch.num_rows else ()
    return FilePreview(path, header, first)


def choose(table: FilePreview, asked: dict[str, str | None]) -> dict[str, str | None]:
    """Decide which column plays which part: as named, or as its heading says.

    Args:
        table: The table.
        asked: What the user named, by part: user, item, rating, label, timestamp.

    Returns:
        A column or None by part: user and item, and one of rating and label, are always there.

    Raises:
        ConfigError: Everything that is wrong or cannot be guessed.
    """
    problems = [
        f"--{part} {column}: there is no such column{suggest(column, table.header)}"
        for part, column in asked.items()
        if column is not None and column not in table.header
    ]
    if not problems:
        chosen = {part: column or _guess(part, table, asked) for part, column in asked.items()}
        if chosen["label"]:
            chosen["rating"] = None
        if chosen["timestamp"] and not asked["timestamp"] and not table.is_time(chosen["timestamp"]):
            chosen["timestamp"] = None  # its format may have to be said
        problems = [*_missing(chosen), *_unfit(table, chosen)]
    if problems:
        raise ConfigError("\n  ".join([f"{table.path}:", *problems]), hint=f"its columns are {', '.join(table.header)}")
    return chosen


def _missing(chosen: dict[str, str | None]) -> list[str]:
    missing = [part for part in ("user", "item") if not chosen[part]]
    problems = [f"cannot tell which column has the {part}; name it with --{part}" for part in missing]
    if not (chosen["rating"] or chosen["label"]):
        problems.append("cannot tell which column has the rating or the label; name it with --rating or --label")
    return problems


def _unfit(table: FilePreview, chosen: dict[str, str | None]) -> list[str]:
    numbers = {part: chosen[part] for part in ("rating", "label")}
    return [
        f"the {part} column {column!r} has to hold numbers"
        for part, column in numbers.items()
        if column and not table.is_number(column)
    ]


def _guess(part: str, table: FilePreview, asked: dict[str, str | None]) -> str | None:
    if part in {"rating", "label"} and (asked["rating"] or asked["label"]):
        return None
    plain = {column.lower().replace("_", "").replace(" ", ""): column for column in reversed(table.header)}
    taken = set(asked.values())
    return next((plain[usual] for usual in _USUAL[part] if usual in plain and plain[usual] not in taken), None)
