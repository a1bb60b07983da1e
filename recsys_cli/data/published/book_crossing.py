r"""Book-Crossing: Latin-1, fields in quotes between semicolons, with \" in titles and NULL for unknown values."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from recsys_cli.data.published.description import Description, Download
from recsys_cli.data.published.rows import parsed, unique, write_rows
from recsys_cli.data.source import RawTable
from recsys_cli.events import Emit

_FIELD = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|(NULL)|([^";]*))(?:;|$)')
_RATINGS = pa.schema([("user", pa.int32()), ("isbn", pa.string()), ("rating", pa.int8())])
_BOOKS = pa.schema([
    ("isbn", pa.string()), ("title", pa.string()), ("author", pa.string()), ("year", pa.int32()), ("publisher", pa.string()),
])  # fmt: skip
_USERS = pa.schema([("user", pa.int32()), ("location", pa.string()), ("age", pa.int32())])


def convert(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write ratings, books and users."""
    parts = zip(files, ("ratings", "books", "users"), (_RATINGS, _BOOKS, _USERS), (_rating, _book, _user), strict=True)
    for file, name, schema, parse in parts:
        rows = parsed(file, parse, emit, encoding="latin-1", header=True)
        write_rows(folder / f"{name}.parquet", schema, rows if name == "ratings" else unique(rows))


def fields(line: str) -> list[str | None]:
    r"""Split a line at the semicolons outside of quotes; \" is a quote within a field."""
    values: list[str | None] = []
    position = 0
    while position < len(line):
        match = _FIELD.match(line, position)
        if match is None:
            return []
        quoted, null, plain = match.groups()
        values.append(None if null else re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain)
        position = match.end()
    return values


def _rating(line: str) -> tuple[object, ...] | None:
    match fields(line):
        case [str(user), str(isbn), str(rating)] if user.isdecimal() and isbn.strip() and rating.isdecimal():
            return int(user), isbn.strip(), int(rating)
    return None


def _book(line: str) -> tuple[object, ...] | None:
    values = fields(line)
    if len(values) == 7 and values[1] and '";' in values[1]:  # a backslash before the quote that ends the title
        values[1:2] = values[1].split('";', 1)
    match values:
        case [str(isbn), title, author, year, publisher, _, _, _] if isbn.strip():
            known = int(year) if year and year.isdecimal() and int(year) else None
            return isbn.strip(), _text(title), _text(author), known, _text(publisher)
    return None


def _user(line: str) -> tuple[object, ...] | None:
    match fields(line):
        case [str(user), location, age] if user.isdecimal() and (age is None or age.isdecimal()):
            return int(user), _text(location), None if age is None else int(age)
    return None


def _text(value: str | None) -> str | None:
    return value and html.unescape(value)


DESCRIPTIONS = (
    Description(
        name="book-crossing",
        licence="unknown, its page is offline",
        homepage="http://www2.informatik.uni-freiburg.de/~cziegler/BX/",
        downloads=(Download("BX-CSV-Dump.zip", members=("BX-Book-Ratings.csv", "BX-Books.csv", "BX-Users.csv")),),
        tables=(
            RawTable("interactions", (Path("ratings.parquet"),), format="parquet"),
            RawTable("books", (Path("books.parquet"),), format="parquet"),
            RawTable("users", (Path("users.parquet"),), format="parquet"),
        ),
        rows=1_149_780,
        access="moved",
        steps="take a copy of BX-CSV-Dump.zip; its former page",
        convert=convert,
        notice="Book-Crossing by C.-N. Ziegler: cite Ziegler et al. (WWW 2005).",
    ),
)
