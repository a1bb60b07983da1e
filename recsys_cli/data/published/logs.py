"""Logs of clicks, shops, plays and check-ins in delimited text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from recsys_cli.data.fetch import Digest
from recsys_cli.data.published.rows import blocks
from recsys_cli.data.published.source import Description, Download, Options, columns, time
from recsys_cli.data.source import RawTable
from recsys_cli.data.streams import unpacked_name
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
