"""The three file layouts of MovieLens, as raw tables with common names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from recsys_cli.data.source import RawColumn, RawTable

NO_GENRES = "(no genres listed)"

RATINGS = (
    RawColumn("userId", "int32"),
    RawColumn("movieId", "int32"),
    RawColumn("rating", "float32"),
    RawColumn("timestamp", "int64"),
)
MOVIES = (
    RawColumn("movieId", "int32"),
    RawColumn("title", "string"),
    RawColumn("genres", "string", separator="|", empty=NO_GENRES),
)
USER_ID, GENDER, AGE, OCCUPATION, ZIP = (
    RawColumn("userId", "int32"),
    RawColumn("gender", "string"),
    RawColumn("age", "int32"),
    RawColumn("occupation", "string"),  # a group number in 1M, a word in 100K
    RawColumn("zip", "string"),
)
# Flag columns in the order of u.item, with "unknown" as a genre of its own.
FLAGS_100K = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


def comma_separated(folder: Path) -> tuple[RawTable, ...]:
    """Describe 20M and later: CSV with a header line in UTF-8; titles with commas are quoted."""
    return (
        RawTable("interactions", (folder / "ratings.csv",), RATINGS),
        RawTable("movies", (folder / "movies.csv",), MOVIES),
    )


def colons_10m(folder: Path) -> tuple[RawTable, ...]:
    """Describe 10M: two colons between fields, no header, UTF-8."""
    return (
        _colons("interactions", folder / "ratings.dat", RATINGS),
        _colons("movies", folder / "movies.dat", MOVIES),
    )


def colons_1m(folder: Path) -> tuple[RawTable, ...]:
    """Describe 1M: as 10M, in Latin-1, and with users."""
    users = (USER_ID, GENDER, AGE, OCCUPATION, ZIP)
    return (
        _colons("interactions", folder / "ratings.dat", RATINGS, encoding="latin-1"),
        _colons("movies", folder / "movies.dat", MOVIES, encoding="latin-1"),
        _colons("users", folder / "users.dat", users, encoding="latin-1"),
    )


def bars_100k(folder: Path) -> tuple[RawTable, ...]:
    """Describe 100K: ratings between tabs, the rest between bars in Latin-1; one 0/1 column for each genre."""
    movies = (
        RawColumn("movieId", "int32"),
        RawColumn("title", "string"),
        RawColumn("release date", "string", nullable=True),
        RawColumn("video release date", "string", nullable=True),
        RawColumn("IMDb URL", "string", nullable=True),
        *(RawColumn(flag, "int32") for flag in FLAGS_100K),
    )
    users = (USER_ID, AGE, GENDER, OCCUPATION, ZIP)
    return (
        RawTable("interactions", (folder / "u.data",), RATINGS, separator="\t", header=False, quote=None),
        RawTable(
            "movies",
            (folder / "u.item",),
            movies,
            separator="|",
            header=False,
            encoding="latin-1",
            quote=None,
            flags={"genres": FLAGS_100K},
        ),
        RawTable("users", (folder / "u.user",), users, separator="|", header=False, encoding="latin-1", quote=None),
    )


def _colons(
    name: str, file: Path, columns: tuple[RawColumn, ...], *, encoding: Literal["utf-8", "latin-1"] = "utf-8"
) -> RawTable:
    # Quotes in titles are ordinary characters.
    return RawTable(name, (file,), columns, separator="::", header=False, encoding=encoding, quote=None)
