"""Reviews and ratings of products, games and books, converted to Parquet."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from recsys_cli.data.published.rows import blocks, parsed, unique, write_rows
from recsys_cli.data.published.source import Options
from recsys_cli.errors import DataError
from recsys_cli.events import Emit

Category = Literal[
    "All_Beauty", "Amazon_Fashion", "Appliances", "Arts_Crafts_and_Sewing", "Automotive", "Baby_Products",
    "Beauty_and_Personal_Care", "Books", "CDs_and_Vinyl", "Cell_Phones_and_Accessories", "Clothing_Shoes_and_Jewelry",
    "Digital_Music", "Electronics", "Gift_Cards", "Grocery_and_Gourmet_Food", "Handmade_Products", "Health_and_Household",
    "Health_and_Personal_Care", "Home_and_Kitchen", "Industrial_and_Scientific", "Kindle_Store", "Magazine_Subscriptions",
    "Movies_and_TV", "Musical_Instruments", "Office_Products", "Patio_Lawn_and_Garden", "Pet_Supplies", "Software",
    "Sports_and_Outdoors", "Subscription_Boxes", "Tools_and_Home_Improvement", "Toys_and_Games", "Unknown", "Video_Games",
]  # fmt: skip

# Only these fields are kept: texts and images are most of the bytes, and `price` and `details` have no fixed type.
REVIEWS = pa.schema([
    ("user_id", pa.string()), ("parent_asin", pa.string()), ("asin", pa.string()), ("rating", pa.float32()),
    ("timestamp", pa.int64()), ("helpful_vote", pa.int32()), ("verified_purchase", pa.bool_()),
])  # fmt: skip
PRODUCTS = pa.schema([
    ("parent_asin", pa.string()), ("title", pa.string()), ("main_category", pa.string()), ("store", pa.string()),
    ("average_rating", pa.float32()), ("rating_number", pa.int32()), ("categories", pa.list_(pa.string())),
])  # fmt: skip


class OneCategory(Options):
    """Category of the products."""

    category: Category = "All_Beauty"
    """Category, as in the names of the files."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The category."""
        return (self.category,)


def convert_amazon(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write the fields of reviews and products as Parquet."""
    reviews, products = files
    _write(folder / "reviews.parquet", REVIEWS, reviews, emit)
    _write(folder / "products.parquet", PRODUCTS, products, emit)


def _write(to: Path, schema: pa.Schema, file: Path, emit: Emit) -> None:
    with pq.ParquetWriter(to, schema) as writer:
        for table in _tables(file, schema, emit):
            writer.write_table(table)


def _tables(file: Path, schema: pa.Schema, emit: Emit) -> Iterator[pa.Table]:
    line = 1
    fields = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    for block in blocks(file, emit):
        whole = pyarrow.json.ReadOptions(block_size=len(block) + 1)
        try:
            yield pyarrow.json.read_json(pa.BufferReader(block), read_options=whole, parse_options=fields)
        except pa.ArrowInvalid:
            yield _line_by_line(file, block, line, schema)
        line += block.count(b"\n")


def _line_by_line(file: Path, block: bytes, first: int, schema: pa.Schema) -> pa.Table:
    """Parse a block with a line that Arrow refuses, such as one with half a surrogate pair in a text."""
    rows = []
    for number, text in enumerate(block.removesuffix(b"\n").split(b"\n"), first):
        try:
            row = json.loads(text)
            rows.append(pa.Table.from_pylist([{name: _whole(row.get(name)) for name in schema.names}], schema))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DataError(
                f"{file.name}:{number}: not a review or product in JSON: {error}: {text[:200]!r}",
                hint="fetch the file again",
            ) from error
    return pa.concat_tables(rows)


def _whole(value: object) -> object:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


_SCHEMA = pa.schema([("user", pa.int32()), ("item", pa.int32()), ("position", pa.int32())])


def convert_s3rec(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write one row per interaction, with its position in the user's history."""
    histories = parsed(files[0], _history, emit)
    rows = ((user, item, position) for user, *items in histories for position, item in enumerate(items))
    write_rows(folder / "interactions.parquet", _SCHEMA, rows)


def _history(line: str) -> list[int] | None:
    fields = line.split()
    return list(map(int, fields)) if len(fields) > 1 and all(map(str.isdecimal, fields)) else None


_LONGEST = 1 << 17
"""Longest line that is parsed; reviews have at most 8,000 characters."""
_DEEPEST = 64
"""Most brackets and signs outside of texts, against nested input that exhausts the parser."""
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_BRACKET = re.compile(r"[(\[{]|[-+~]|not\b")
_REVIEWS = pa.schema([
    ("username", pa.string()), ("product_id", pa.string()), ("date", pa.string()), ("hours", pa.float32()),
    ("early_access", pa.bool_()),
])  # fmt: skip
_GAMES = pa.schema([
    ("product_id", pa.string()), ("app_name", pa.string()), ("release_date", pa.string()), ("genres", pa.list_(pa.string())),
])  # fmt: skip


def convert_steam(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write reviews without texts, and games with their genres."""
    reviews, games = files
    write_rows(folder / "reviews.parquet", _REVIEWS, parsed(reviews, _review, emit))
    write_rows(folder / "games.parquet", _GAMES, unique(parsed(games, _game, emit)))


def _review(line: str) -> tuple[object, ...] | None:
    fields = literal(line)
    user, product, date = (fields.get(name) for name in ("username", "product_id", "date"))
    if not (isinstance(user, str) and user and isinstance(product, str) and product and isinstance(date, str) and date):
        return None
    hours, early = fields.get("hours"), fields.get("early_access")
    return user, product, date, hours if isinstance(hours, int | float) else None, early is True


def _game(line: str) -> tuple[object, ...] | None:
    fields = literal(line)
    product, genres = fields.get("id"), fields.get("genres", [])
    if not isinstance(product, str) or not isinstance(genres, list):
        return None
    texts = (fields.get(name) for name in ("app_name", "release_date"))
    name, released = (text if isinstance(text, str) else None for text in texts)
    return product, name, released, [genre for genre in genres if isinstance(genre, str)]


def literal(line: str) -> dict[str, Any]:
    """Return a mapping of plain values; empty for any other line."""
    if len(line) > _LONGEST or len(_BRACKET.findall(_TEXT.sub("", line))) > _DEEPEST:
        return {}
    try:
        value = ast.literal_eval(line)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_FIELD = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|(NULL)|([^";]*))(?:;|$)')
_RATINGS = pa.schema([("user", pa.int32()), ("isbn", pa.string()), ("rating", pa.int8())])
_BOOKS = pa.schema([
    ("isbn", pa.string()), ("title", pa.string()), ("author", pa.string()), ("year", pa.int32()), ("publisher", pa.string()),
])  # fmt: skip
_USERS = pa.schema([("user", pa.int32()), ("location", pa.string()), ("age", pa.int32())])


def convert_book_crossing(folder: Path, files: Sequence[Path], emit: Emit) -> None:
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
