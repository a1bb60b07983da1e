"""Click logs and impressions: Criteo, Avazu, MIND."""

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

from recsys_cli.data.fetch import Digest
from recsys_cli.data.published.rows import blocks, parsed, unique, write_rows
from recsys_cli.data.published.source import Description, Download, Options, columns, time
from recsys_cli.data.raw_files import unpacked_name
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.events import Emit

_NUMBERS = columns("int32", *(f"I{number}" for number in range(1, 14)), nullable=True)
_TOKENS = columns("string", *(f"C{number}" for number in range(1, 27)), nullable=True)
_CRITEO = (*columns("int32", "label"), *_NUMBERS, *_TOKENS)


def _criteo(file: str) -> RawTable:
    return RawTable("interactions", (Path(file),), _CRITEO, separator="\t", header=False, quote=None)


class Days(Options):
    """Days of the click logs."""

    days: tuple[Annotated[int, Field(ge=0, le=23)], ...] = Field(tuple(range(24)), min_length=1)
    """Days to read, 0 to 23, each about 180 million rows."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The numbers of the days."""
        return tuple(str(day) for day in dict.fromkeys(self.days))


CLICKS = (
    Description(
        name="criteo-kaggle",
        licence="Criteo, non-commercial",
        homepage="https://ailab.criteo.com/ressources/",
        downloads=(
            Download(
                "criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz",
                "https://go.criteo.net/criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz",
                members=("train.txt",),
            ),
        ),
        tables=(_criteo("train.txt"),),
        rows=45_840_617,
        size=4_576_820_670,
        notice="Criteo Display Advertising Challenge (2014): the terms of Criteo AI Lab apply.",
    ),
    Description(
        name="criteo-1tb",
        licence="CC BY-NC-SA 4.0",
        homepage="https://huggingface.co/datasets/criteo/CriteoClickLogs",
        downloads=(Download("day_{part}.gz"),),
        tables=(_criteo("day_{part}.gz"),),
        access="moved",
        steps="take the text files of the original release, such as day_0.gz; "
        "the publisher has the rows as Parquet now, for dataset.name=files",
        options=Days,
    ),
    Description(
        name="avazu",
        licence="Kaggle competition rules",
        homepage="https://www.kaggle.com/c/avazu-ctr-prediction/data",
        downloads=(Download("train.gz"),),
        tables=(
            RawTable(
                "interactions",
                (Path("train.gz"),),
                (
                    *columns("string", "id"),
                    *columns("int32", "click", "hour", "C1", "banner_pos"),
                    *columns("string", "site_id", "site_domain", "site_category", "app_id", "app_domain"),
                    *columns("string", "app_category", "device_id", "device_ip", "device_model"),
                    *columns("int32", "device_type", "device_conn_type", *(f"C{number}" for number in range(14, 22))),
                ),
            ),
        ),
        rows=40_428_967,
        access="login",
        steps="log in to Kaggle, accept the rules and take train.gz",
    ),
)


Month = Literal["2019-Oct", "2019-Nov", "2019-Dec", "2020-Jan", "2020-Feb", "2020-Mar", "2020-Apr"]


class Months(Options):
    """Months of the events."""

    months: tuple[Month, ...] = Field(("2019-Oct", "2019-Nov"), min_length=1)
    """Months to read, from 2019-Oct to 2020-Apr; October has 42 million events, November 68 million."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The months."""
        return tuple(dict.fromkeys(self.months))


SHOPS = (
    Description(
        name="rees46",
        licence="free, with a link to REES46",
        homepage="https://www.kaggle.com/datasets/mkechinov/ecommerce-behavior-data-from-multi-category-store",
        downloads=(Download("{part}.csv.gz", "https://data.rees46.com/datasets/marketplace/{part}.csv.gz"),),
        tables=(
            RawTable(
                "interactions",
                (Path("{part}.csv.gz"),),
                (
                    time("event_time"),
                    *columns("string", "event_type"),
                    *columns("int64", "product_id", "category_id"),
                    *columns("string", "category_code", "brand", nullable=True),
                    *columns("float32", "price", nullable=True),
                    *columns("int64", "user_id"),
                    *columns("string", "user_session", nullable=True),
                ),
            ),
        ),
        options=Months,
        notice="REES46 Marketing Platform: name REES46 (rees46.com) as the source.",
    ),
    Description(
        name="yoochoose",
        licence="CC BY-NC-ND 4.0",
        homepage="https://www.kaggle.com/datasets/chadgostopp/recsys-challenge-2015",
        downloads=(Download("archive.zip", members=("yoochoose-clicks.dat", "yoochoose-buys.dat")),),
        tables=(
            RawTable(
                "interactions",
                (Path("yoochoose-clicks.dat"),),
                # "S" is a special offer, 0 is unknown, 1 to 12 are categories, and longer numbers brands.
                (
                    *columns("int32", "session"),
                    time("timestamp"),
                    *columns("int32", "item"),
                    *columns("string", "category"),
                ),
                header=False,
                quote=None,
            ),
            RawTable(
                "buys",
                (Path("yoochoose-buys.dat"),),
                # Price and quantity are 0 where unknown.
                (*columns("int32", "session"), time("timestamp"), *columns("int32", "item", "price", "quantity")),
                header=False,
                quote=None,
            ),
        ),
        rows=33_003_944,
        access="login",
        steps="log in to Kaggle and take the archive, or unpack yoochoose-data.7z (7z x) and pass its folder",
    ),
    Description(
        name="retailrocket",
        licence="CC BY-NC-SA 4.0",
        homepage="https://www.kaggle.com/datasets/retailrocket/ecommerce-dataset",
        downloads=(Download("archive.zip", members=("events.csv",)),),
        tables=(
            RawTable(
                "interactions",
                (Path("events.csv"),),
                (
                    time("timestamp", "ms"),
                    *columns("int32", "visitorid"),
                    *columns("string", "event"),
                    *columns("int32", "itemid"),
                    *columns("int32", "transactionid", nullable=True),
                ),
            ),
        ),
        rows=2_756_101,
        access="login",
        steps="log in to Kaggle and take the archive",
    ),
)


_ARTISTS = (b"id\tname\turl\tpictureURL", b"artistID\tname\turl\tpictureURL")


def _rename_key(folder: Path, files: Sequence[Path], emit: Emit) -> None:
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


PLAYS = (
    Description(
        name="lastfm-360k",
        licence="Last.fm, non-commercial",
        homepage="https://zenodo.org/records/6090214",
        downloads=(
            Download(
                "lastfm-dataset-360K.tar.gz",
                "https://zenodo.org/records/6090214/files/lastfm-dataset-360K.tar.gz",
                members=("usersha1-artmbid-artname-plays.tsv", "usersha1-profile.tsv"),
                digest=Digest("635e6ed3fc873aa4ba33aba0ebce02b1", size=569_202_935),
            ),
        ),
        tables=(
            RawTable(
                "interactions",
                (Path("usersha1-artmbid-artname-plays.tsv"),),
                (
                    *columns("string", "user"),
                    *columns("string", "mbid", "artist", nullable=True),
                    *columns("int32", "plays"),
                ),
                separator="\t",
                header=False,
                quote=None,
            ),
            RawTable(
                "users",
                (Path("usersha1-profile.tsv"),),
                (
                    *columns("string", "user"),
                    *columns("string", "gender", nullable=True),
                    *columns("int32", "age", nullable=True),
                    *columns("string", "country", "signup", nullable=True),
                ),
                separator="\t",
                header=False,
                quote=None,
            ),
        ),
        rows=17_559_530,
        size=569_202_935,
        notice="Last.fm 360K by O. Celma, with permission of Last.fm, for non-commercial use.",
    ),
    Description(
        name="hetrec-lastfm",
        licence="Last.fm, non-commercial",
        homepage="https://grouplens.org/datasets/hetrec-2011/",
        downloads=(
            Download(
                "hetrec2011-lastfm-2k.zip",
                "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
                members=("user_artists.dat", "artists.dat"),
                digest=Digest("296d61afe4e8632b173fc2dd3be20ce2"),
            ),
        ),
        tables=(
            RawTable(
                "interactions",
                (Path("user_artists.tsv"),),
                columns("int32", "userID", "artistID", "weight"),
                separator="\t",
                quote=None,
            ),
            RawTable(
                "artists",
                (Path("artists.tsv"),),
                (*columns("int32", "artistID"), *columns("string", "name", "url", "pictureURL", nullable=True)),
                separator="\t",
                quote=None,
            ),
        ),
        rows=92_834,
        convert=_rename_key,
        notice="HetRec 2011 Last.fm by Cantador, Brusilovsky and Kuflik: non-commercial use.",
    ),
    Description(
        name="gowalla",
        licence="on its page",
        homepage="https://snap.stanford.edu/data/loc-gowalla.html",
        downloads=(
            Download(
                "loc-gowalla_totalCheckins.txt.gz",
                "https://snap.stanford.edu/data/loc-gowalla_totalCheckins.txt.gz",
                digest=Digest("8ebd5ed2dd376d8982987c49429cb9f9", size=105_470_044),
            ),
        ),
        tables=(
            RawTable(
                "interactions",
                (Path("loc-gowalla_totalCheckins.txt.gz"),),
                (
                    *columns("int32", "user"),
                    time("time"),
                    *columns("float64", "latitude", "longitude"),
                    *columns("int32", "location"),
                ),
                separator="\t",
                header=False,
                quote=None,
            ),
        ),
        rows=6_442_890,
        size=105_470_044,
        notice="Gowalla check-ins of SNAP: cite Cho, Myers and Leskovec (KDD 2011).",
    ),
)


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


MIND = (
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
