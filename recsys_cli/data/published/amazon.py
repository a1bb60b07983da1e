"""Amazon Reviews 2023: reviews and products of a category, in JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from recsys_cli.data.published.description import Description, Download, Options, time
from recsys_cli.data.published.rows import blocks
from recsys_cli.data.source import RawColumn, RawTable
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
_ADDRESS = "https://mcauleylab.ucsd.edu/public_datasets/data/amazon_2023/raw/"

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


def convert(folder: Path, files: Sequence[Path], emit: Emit) -> None:
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


DESCRIPTIONS = (
    Description(
        name="amazon-reviews-2023",
        licence="on its page",
        homepage="https://amazon-reviews-2023.github.io",
        downloads=(
            Download("{part}.jsonl.gz", f"{_ADDRESS}review_categories/{{part}}.jsonl.gz"),
            Download("meta_{part}.jsonl.gz", f"{_ADDRESS}meta_categories/meta_{{part}}.jsonl.gz"),
        ),
        tables=(
            RawTable("interactions", (Path("reviews.parquet"),), (time("timestamp", "ms"),), format="parquet"),
            RawTable("products", (Path("products.parquet"),), (RawColumn("parent_asin", "string"),), format="parquet"),
        ),
        options=OneCategory,
        convert=convert,
        notice="Amazon Reviews 2023 of the McAuley Lab: cite Hou et al. (2024), arxiv.org/abs/2403.03952.",
    ),
)
