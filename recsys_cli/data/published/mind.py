"""MIND, the Microsoft News Dataset: impressions with candidates `N55689-1 N35729-0`, and the news."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from recsys_cli.data.fetch import Digest
from recsys_cli.data.published.rows import blocks, parsed, unique, write_rows
from recsys_cli.data.published.source import Description, Download
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.data.streams import unpacked_name
from recsys_cli.errors import DataError
from recsys_cli.events import Emit

_ADDRESS = "https://recodatasets.z20.web.core.windows.net/newsrec/"
_MEMBERS = ("behaviors.tsv", "news.tsv")
_TIME = "%m/%d/%Y %I:%M:%S %p"
_BEHAVIORS = ("impression_id", "user_id", "time", "history", "impressions")
_NEWS = ("news_id", "category", "subcategory", "title", "abstract", "url", "title_entities", "abstract_entities")
_CANDIDATE = r"^[^\s-]+-[01]$"
HISTORY = 50
"""Most clicks of a history that are kept, the latest; they repeat for each candidate of an impression."""
SHOWN = pa.schema([
    ("part", pa.string()), ("impression_id", pa.string()), ("user_id", pa.string()), ("time", pa.string()),
    ("news_id", pa.string()), ("click", pa.int8()), ("history", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
])  # fmt: skip


def convert(folder: Path, files: Sequence[Path], emit: Emit) -> None:
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


def _of(size: str, downloads: Sequence[tuple[str, str, int | None]]) -> Description:
    names = [f"MIND{size}_{part}" for part, _, _ in downloads]
    sizes = [num_bytes for _, _, num_bytes in downloads]
    return Description(
        name=f"mind-{size}",
        licence="Microsoft Research, non-commercial",
        homepage="https://msnews.github.io",
        downloads=tuple(
            Download(f"{name}.zip", f"{_ADDRESS}{name}.zip", _MEMBERS, folder=name, digest=Digest(md5, size=num_bytes))
            for name, (_, md5, num_bytes) in zip(names, downloads, strict=True)
        ),
        tables=(
            RawTable(
                "interactions", (Path("impressions.parquet"),), (RawColumn("time", None, time=_TIME),), format="parquet"
            ),
            RawTable("news", (Path("news.parquet"),), format="parquet"),
        ),
        size=None if None in sizes else sum(num_bytes or 0 for num_bytes in sizes),
        steps=f"take {' and '.join(f'{name}.zip' for name in names)}, also at "
        "https://huggingface.co/datasets/Recommenders/MIND, a copy by the Recommenders project",
        convert=convert,
        notice="MIND of Microsoft News: Microsoft Research License, non-commercial; cite Wu et al. (ACL 2020).",
    )


DESCRIPTIONS = (
    _of(
        "small",
        [
            ("train", "8ab752c7d11564622d93132be05dcf6b", 52_952_752),
            ("dev", "e3bac5485be8fc7a9934e85e3b78615f", 30_945_572),
        ],
    ),
    _of(
        "large",
        [("train", "5be1c8f9a6809092db5fc0ac23d60f72", None), ("dev", "8f3dd8923172048b0e5980e7ee40841b", None)],
    ),
)
