"""Steam reviews: lines that are literals of Python, read as such and never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.data.published.description import Description, Download
from recsys_cli.data.published.rows import parsed, unique, write_rows
from recsys_cli.data.source import RawTable
from recsys_cli.events import Emit

_LONGEST = 1 << 17
"""Longest line that is parsed; reviews have at most 8,000 characters."""
_DEEPEST = 64
"""Most brackets and signs outside of texts, against nested input that exhausts the parser."""
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_BRACKET = re.compile(r"[(\[{]|[-+~]|not\b")
_ADDRESS = "https://mcauleylab.ucsd.edu/public_datasets/data/steam/"
_REVIEWS = pa.schema([
    ("username", pa.string()), ("product_id", pa.string()), ("date", pa.string()), ("hours", pa.float32()),
    ("early_access", pa.bool_()),
])  # fmt: skip
_GAMES = pa.schema([
    ("product_id", pa.string()), ("app_name", pa.string()), ("release_date", pa.string()), ("genres", pa.list_(pa.string())),
])  # fmt: skip


def convert(folder: Path, files: Sequence[Path], emit: Emit) -> None:
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


DESCRIPTIONS = (
    Description(
        name="steam",
        licence="on its page",
        homepage="https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data",
        downloads=(
            Download("steam_reviews.json.gz", f"{_ADDRESS}steam_reviews.json.gz"),
            Download("steam_games.json.gz", f"{_ADDRESS}steam_games.json.gz"),
        ),
        tables=(
            RawTable("interactions", (Path("reviews.parquet"),), format="parquet"),
            RawTable("games", (Path("games.parquet"),), format="parquet"),
        ),
        rows=7_793_069,
        convert=convert,
        notice="Steam reviews of the McAuley Lab: cite Kang and McAuley (ICDM 2018).",
    ),
)
