"""Parts of click logs and shop events, and conversions: keys of artists, impressions of MIND."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pydantic import Field

from recsys_cli.data.published.rows import blocks, parsed, unique, write_rows
from recsys_cli.data.published.source import Options
from recsys_cli.data.raw_files import unpacked_name
from recsys_cli.errors import DataError
from recsys_cli.events import Emit


class Days(Options):
    """Days of the click logs."""

    days: tuple[Annotated[int, Field(ge=0, le=23)], ...] = Field(tuple(range(24)), min_length=1)
    """Days to read, 0 to 23, each about 180 million rows."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The numbers of the days."""
        return tuple(str(day) for day in dict.fromkeys(self.days))


Month = Literal["2019-Oct", "2019-Nov", "2019-Dec", "2020-Jan", "2020-Feb", "2020-Mar", "2020-Apr"]


class Months(Options):
    """Months of the events."""

    months: tuple[Month, ...] = Field(("2019-Oct", "2019-Nov"), min_length=1)
    """Months to read, from 2019-Oct to 2020-Apr; October has 42 million events, November 68 million."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The months."""
        return tuple(dict.fromkeys(self.months))


_ARTISTS = (b"id\tname\turl\tpictureURL", b"artistID\tname\turl\tpictureURL")


def rename_key(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Give the artists' key the name that it has in the interactions."""
    before, after = _ARTISTS
    for file in files:
        name = Path(unpacked_name(file.name))
        text = b"".join(blocks(file, emit))
        if name.stem == "artists":
            if not text.startswith(before):
                raise DataError(f"{file.name}: the header is {text[:60]!r}, not {before!r}")
            text = after + text.removeprefix(before)
        (folder / name.with_suffix(".tsv")).write_bytes(text)


_BEHAVIORS = ("impression_id", "user_id", "time", "history", "impressions")
_NEWS = ("news_id", "category", "subcategory", "title", "abstract", "url", "title_entities", "abstract_entities")
_CANDIDATE = r"^[^\s-]+-[01]$"
HISTORY = 50
"""Most clicks of a history that are kept, the latest; they repeat for each candidate of an impression."""
SHOWN = pa.schema([
    ("part", pa.string()), ("impression_id", pa.string()), ("user_id", pa.string()), ("time", pa.string()),
    ("news_id", pa.string()), ("click", pa.int8()), ("history", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
])  # fmt: skip


def convert_mind(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write one row per shown news with its click and the user's history, and the distinct news of all parts."""
    with pq.ParquetWriter(folder / "impressions.parquet", SHOWN, store_schema=False) as writer:
        for file in files:
            for table in _shown(file, emit) if unpacked_name(file.name) == "behaviors.tsv" else ():
                writer.write_table(table)
    news = (row for file in files if unpacked_name(file.name) == "news.tsv" for row in parsed(file, _one_news, emit))
    write_rows(folder / "news.parquet", pa.schema([(name, pa.string()) for name in _NEWS[:4]]), unique(news))


def _one_news(line: str) -> tuple[object, ...] | None:
    fields = line.split("\t")
    return tuple(fields[:4]) if len(fields) == len(_NEWS) else None


def _shown(file: Path, emit: Emit) -> Iterator[pa.Table]:
    part = file.parent.name.rpartition("_")[2]
    for block in blocks(file, emit):
        try:
            rows = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                read_options=pyarrow.csv.ReadOptions(column_names=_BEHAVIORS, block_size=len(block) + 1),
                parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={name: pa.int64() if name == "impression_id" else pa.string() for name in _BEHAVIORS}
                ),
            )
        except pa.ArrowInvalid as error:
            raise DataError(f"{file.parent.name}/{file.name}: {error}", hint="fetch the archive again") from error
        yield _exploded(rows.combine_chunks(), part, file)


def _exploded(rows: pa.Table, part: str, file: Path) -> pa.Table:
    lists = _words(rows.column("impressions"))
    row, candidate = pc.list_parent_indices(lists), pc.list_flatten(lists)
    shown = pc.not_equal(candidate, "")
    row, candidate = row.filter(shown), candidate.filter(shown)
    wrong = pc.invert(pc.match_substring_regex(candidate, _CANDIDATE))
    if pc.any(wrong).as_py():
        number = rows.column("impression_id")[row.filter(wrong)[0].as_py()]
        raise DataError(
            f"{file.parent.name}/{file.name}: impression {number} has {candidate.filter(wrong)[0].as_py()!r}, "
            "not NEWS-0 or NEWS-1",
            hint="pass the train and dev archives: the test archive has no clicks",
        )
    impression, *taken = (rows.column(name).take(row) for name in ("impression_id", "user_id", "time"))
    number = pc.binary_join_element_wise(part, impression.cast(pa.string()), "-")  # both parts count from 1
    news = pc.replace_substring_regex(candidate, "-[01]$", "")
    click = pc.ends_with(candidate, "-1").cast(pa.int8())
    history = _latest(_words(rows.column("history"))).take(row)
    columns = [pa.array([part] * len(row), pa.string()), number, *taken, news, click, history]
    return pa.Table.from_arrays(columns, schema=SHOWN)


def _words(texts: pa.ChunkedArray) -> pa.ListArray:
    return pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts.fill_null(""))).combine_chunks()


def _latest(histories: pa.ListArray) -> pa.ListArray:
    """Return the last clicks of each history, as dictionaries: rows of one impression share the texts."""
    row, news = pc.list_parent_indices(histories).to_numpy(), pc.list_flatten(histories)
    ends = np.cumsum(np.bincount(row, minlength=len(histories)))
    kept = (np.arange(len(row)) >= ends[row] - HISTORY) & pc.not_equal(news, "").to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row[kept], minlength=len(histories)))))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), news.filter(pa.array(kept)).dictionary_encode())
