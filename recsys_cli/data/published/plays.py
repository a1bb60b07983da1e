"""Counts of plays and check-ins: Last.fm 360K, HetRec Last.fm and Gowalla."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recsys_cli.data.digest import Digest
from recsys_cli.data.published.description import Description, Download, columns, time
from recsys_cli.data.published.rows import blocks
from recsys_cli.data.source import RawTable
from recsys_cli.data.streams import unpacked_name
from recsys_cli.errors import DataError
from recsys_cli.events import Emit

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


DESCRIPTIONS = (
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
