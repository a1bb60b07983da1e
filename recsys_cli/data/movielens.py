"""The MovieLens datasets: the releases, their archives and their three file layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from recsys_cli.data.archive import unpack
from recsys_cli.data.fetch import Digest, address, by_hand_named, download, file_digest, refuse_impostor
from recsys_cli.data.options import NoOptions, parse_options
from recsys_cli.data.published.source import Download, collect, stored
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, RawColumn, RawTable
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Message

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


PUBLISHER = "https://files.grouplens.org/datasets/movielens/"
NOTICE = (
    "MovieLens data is published by GroupLens, University of Minnesota, for research: acknowledge it in publications "
    "(Harper and Konstan 2015, doi.org/10.1145/2827872), ask GroupLens before any commercial use, and read the "
    "release's README before passing the data on."
)


@dataclass(frozen=True)
class Release:
    """Facts of a release.

    Attributes:
        archive: File name at the publisher and at mirrors.
        rows: Number of ratings.
        size: Size of the archive in bytes.
        md5: Digest of the archive; None for a release with new editions under the same name.
        layout: Describes the release's files in a folder.
    """

    archive: str
    rows: int
    size: int
    md5: str | None
    layout: Callable[[Path], tuple[RawTable, ...]]

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the required files in the archive."""
        return tuple(file.name for table in self.layout(Path()) for file in table.files)

    @property
    def digest(self) -> Digest | None:
        """Expected digest of the archive."""
        return Digest(self.md5, size=self.size) if self.md5 else None


RELEASES: dict[str, Release] = {
    "movielens-100k": Release("ml-100k.zip", 100_000, 4_924_029, "0e33842e24a9c977be4e0107933c0723", bars_100k),
    "movielens-1m": Release("ml-1m.zip", 1_000_209, 5_917_549, "c4d9eecfca2ab87c1945afe126590906", colons_1m),
    "movielens-10m": Release("ml-10m.zip", 10_000_054, 65_566_137, "ce571fd55effeba0271552578f2648bd", colons_10m),
    "movielens-20m": Release(
        "ml-20m.zip", 20_000_263, 198_702_078, "cd245b17a1ae2cc31bb14903e1204af3", comma_separated
    ),
    "movielens-25m": Release(
        "ml-25m.zip", 25_000_095, 261_978_986, "6b51fb2759a8657d3bfcbfc42b592ada", comma_separated
    ),
    "movielens-32m": Release(
        "ml-32m.zip", 32_000_204, 238_950_008, "d472be332d4daa821edc399621853b57", comma_separated
    ),
    "movielens-latest-small": Release("ml-latest-small.zip", 100_836, 978_202, None, comma_separated),
}


class MovieLens:
    """A MovieLens release as a Source.

    Args:
        name: Name in the catalog.
        release: Facts of the release.
    """

    def __init__(self, name: str, release: Release) -> None:
        self._name = name
        self._release = release

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        return info(self._name)

    def identity(self) -> dict[str, object]:
        """Return name and expected digest of the archive."""
        return {"archive": self._release.archive, "md5": self._release.md5}

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Fill the folder with the ratings, movies and, if any, users of the release.

        Raises:
            ConfigError: The mirror is not a web address, or the local file does not exist.
            DataError: The download or the archive is wrong or damaged.
        """
        name = self._release.archive
        if request.from_file and request.from_file.is_dir():
            return self._collect(request.from_file, request.folder, emit)
        if request.from_file:
            archive, origin = request.from_file, str(request.from_file)
            digest = self._check_local(archive, emit)
        else:
            archive, origin = request.cache / name, address(name, PUBLISHER + name, request.mirror)
            steps = f"take {name}: {self.info.homepage}; then run: recsys download {self._name} --from-file {name}"
            with by_hand_named(steps):
                digest = download(origin, archive, digest=self._release.digest, emit=emit)
        unpack(archive, self._release.members, request.folder, emit=emit)
        return {"origin": origin, "bytes": archive.stat().st_size, "md5": digest}

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the release's files in `folder`."""
        tables = self._release.layout(folder)
        return tuple(replace(one, files=tuple(stored(folder, file.name) for file in one.files)) for one in tables)

    def _collect(self, given: Path, folder: Path, emit: Emit) -> dict[str, object]:
        """Fill the folder from one with the archive or with its unpacked files."""
        one = Download(self._release.archive, members=self._release.members, digest=self._release.digest)
        collect([one], given, folder, emit=emit)
        files = [stored(folder, name) for name in one.files]
        digests = {file.name: file_digest(file) for file in files}
        return {"origin": str(given), "bytes": sum(file.stat().st_size for file in files), "md5": digests}

    def _check_local(self, archive: Path, emit: Emit) -> str:
        if not archive.is_file():
            raise ConfigError(
                f"there is no file {archive}",
                hint=f"--from-file takes the path of {self._release.archive}, or a folder with it or its unpacked files",
            )
        refuse_impostor(archive, source=str(archive))
        wrong = self._release.digest.mismatch(archive) if self._release.digest else None
        if wrong:
            text = f"{archive} differs from the published {self._release.archive}: {wrong}; using it anyway"
            emit(Message(text, level="warning"))
        return file_digest(archive)


def info(name: str) -> DatasetInfo:
    """Return the catalog entry of a release."""
    release = RELEASES[name]
    return DatasetInfo(
        name=name,
        rows=release.rows,
        size=release.size,
        licence="GroupLens, research use",
        homepage=f"https://grouplens.org/datasets/movielens/{name.removeprefix('movielens-').removesuffix('-small')}/",
        notice=NOTICE,
        access="download",
    )


def options(name: str) -> DatasetOptions:  # noqa: ARG001 - the same for all
    """Return the empty set of options."""
    return DatasetOptions(NoOptions)


def source(name: str, options: Mapping[str, object]) -> MovieLens:
    """Open a release.

    Raises:
        ConfigError: Options were given.
    """
    parse_options(NoOptions, options, dataset=name)
    return MovieLens(name, RELEASES[name])
