from __future__ import annotations

import gzip
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from recsys_cli.data import FetchRequest, RawTable, catalog, open_source, published
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import ignore
from tests.unit.data.wayward import Server, Watcher, digest_of, make_zip

FLAGS = "0|0|0|1|1|1" + "|0" * 13
ARCHIVES: dict[str, dict[str, bytes]] = {
    "movielens-100k": {
        "ml-100k/u.data": b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
        "ml-100k/u.item": f"1|Mis\xe9rables (1995)|01-Jan-1995||http://us.imdb.com/M?x|{FLAGS}\n".encode("latin-1"),
        "ml-100k/u.user": b"1|24|M|technician|85711\n",
        "ml-100k/u1.base": b"not needed",
    },
    "movielens-1m": {
        "ml-1m/ratings.dat": b"1::1193::5::978300760\n1::661::3::978302109\n",
        "ml-1m/movies.dat": '1::"Great Performances" Caf\xe9 (1998)::Animation|Children\'s\n'.encode("latin-1"),
        "ml-1m/users.dat": b"1::F::1::10::48067\n",
    },
    "movielens-10m": {
        "ml-10M100K/ratings.dat": b"1::122::5::838985046\n1::185::4.5::838983525\n",
        "ml-10M100K/movies.dat": "8606::Pull My Dais\u00ff (1958)::(no genres listed)\n".encode(),
        "ml-10M100K/tags.dat": b"not needed",
    },
    **{
        f"movielens-{size}": {
            f"ml-{size}/ratings.csv": b"userId,movieId,rating,timestamp\r\n1,296,5.0,1147880044\r\n1,306,3.5,1147868817\r\n",
            f"ml-{size}/movies.csv": 'movieId,title,genres\r\n11,"Café, The (1995)",Comedy|Drama\r\n'.encode(),
            f"ml-{size}/tags.csv": b"not needed",
        }
        for size in ("20m", "25m", "32m", "latest-small")
    },
}


def request(tmp_path: Path, **how: object) -> FetchRequest:
    """A request whose folder exists and is empty."""
    folder = tmp_path / "raw"
    folder.mkdir(exist_ok=True)
    return FetchRequest(folder, tmp_path / "cache", **how)  # type: ignore[arg-type]


def first_row(table: RawTable) -> dict[str, str]:
    """The first row of a table, read by its declared dialect."""
    lines = table.files[0].read_bytes().decode(table.encoding).splitlines()
    line = lines[1 if table.header else 0]
    fields = line.split(table.separator)
    if table.quote and table.quote in line:  # enough of CSV for one quoted field in the middle
        before, quoted, after = line.split(table.quote)
        fields = [before.rstrip(","), quoted, after.lstrip(",")]
    return dict(zip((column.name for column in table.columns), fields, strict=True))


@pytest.fixture
def mirrored(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A mirror with small archives of all releases, and a catalog with their digests."""
    small = {}
    for name, members in ARCHIVES.items():
        body, release = make_zip(members), published.described(name)
        [packed] = release.downloads
        server.files[f"mirror/{packed.name}"] = body
        small[name] = replace(release, downloads=(replace(packed, digest=packed.digest and digest_of(body)),))
    monkeypatch.setattr(published, "described", small.__getitem__)
    return server


@pytest.mark.parametrize("name", ARCHIVES)
def test_fetch_writes_the_files_of_the_tables(name: str, mirrored: Server, tmp_path: Path) -> None:
    source = open_source(name)
    asked = request(tmp_path, mirror=f"{mirrored.url}/mirror/")
    facts = source.fetch(asked, ignore)
    tables = {table.name: table for table in source.tables(asked.folder)}
    assert next(iter(tables)) == "interactions"
    assert {file for table in tables.values() for file in table.files} == set(asked.folder.iterdir())
    assert facts["verified"] == {source.downloads[0].name: True if name != "movielens-latest-small" else None}
    for table in tables.values():
        row = first_row(table)
        for column in table.columns:
            if column.dtype != "string":
                float(row[column.name])
    types = {column.name: column.dtype for column in tables["interactions"].columns}
    assert types == {"userId": "int32", "movieId": "int32", "rating": "float32", "timestamp": "int64"}
    title = ARCHIVES[name][next(m for m in ARCHIVES[name] if "movies" in m or "u.item" in m)]
    assert first_row(tables["movies"])["title"].encode(tables["movies"].encoding) in title


@pytest.mark.parametrize("name", ["movielens-1m", "movielens-10m", "movielens-25m"])
def test_genres_are_a_list_column(name: str, tmp_path: Path) -> None:
    movies = open_source(name).tables(tmp_path)[1]
    assert [column.name for column in movies.columns] == ["movieId", "title", "genres"]
    genres = movies.columns[2]
    assert (genres.dtype, genres.separator, genres.empty) == ("string", "|", "(no genres listed)")


def test_100k_has_its_genres_as_flags(mirrored: Server, tmp_path: Path) -> None:
    source = open_source("movielens-100k")
    asked = request(tmp_path, mirror=f"{mirrored.url}/mirror")
    source.fetch(asked, ignore)
    _, movies, users = source.tables(asked.folder)
    row = first_row(movies)
    assert len(movies.flags["genres"]) == 19
    assert [flag for flag in movies.flags["genres"] if row[flag] == "1"] == ["Animation", "Children's", "Comedy"]
    assert row["video release date"] == ""
    assert {c.name for c in movies.columns if c.nullable} == {"release date", "video release date", "IMDb URL"}
    assert first_row(users) == {"userId": "1", "age": "24", "gender": "M", "occupation": "technician", "zip": "85711"}


def test_mirror_argument_wins_over_the_variable(
    mirrored: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECSYS_MIRROR", f"{mirrored.url}/nowhere")
    source = open_source("movielens-25m")
    with pytest.raises(DataError, match=r"nowhere/ml-25m\.zip: the server answers 404"):
        source.fetch(request(tmp_path), ignore)
    facts = source.fetch(request(tmp_path, mirror=f"{mirrored.url}/mirror"), ignore)
    assert facts["origin"] == f"{mirrored.url}/mirror/ml-25m.zip"


def test_mirror_has_to_be_a_web_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mirror '/mnt/data' is not a web address"):
        open_source("movielens-25m").fetch(request(tmp_path, mirror="/mnt/data"), ignore)


def test_local_file_with_another_digest_is_a_warning(tmp_path: Path, watcher: Watcher) -> None:
    local = tmp_path / "mine.zip"
    local.write_bytes(make_zip(ARCHIVES["movielens-25m"]))
    asked = request(tmp_path, from_file=local)
    facts = open_source("movielens-25m").fetch(asked, watcher)
    assert "mine.zip differs from the published ml-25m.zip" in watcher.texts("warning")
    assert facts["verified"] == {"ml-25m.zip": False}
    assert {path.name for path in asked.folder.iterdir()} == {"ratings.csv", "movies.csv"}
    assert local.exists()


@pytest.mark.parametrize("shape", ["archive", "unpacked", "subfolder", "gzip"])
def test_local_folder_has_the_archive_or_its_files(shape: str, tmp_path: Path) -> None:
    given = tmp_path / "given"
    folder = given / "ml-25m" if shape == "subfolder" else given
    folder.mkdir(parents=True)
    packed = make_zip(ARCHIVES["movielens-25m"])
    if shape == "archive":
        (given / "ml-25m.zip").write_bytes(packed)
    else:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for name in ("ratings.csv", "movies.csv"):
                content = next(archive.read(member) for member in archive.namelist() if member.endswith(name))
                (folder / name).write_bytes(content)
    if shape == "gzip":
        (folder / "ratings.csv.gz").write_bytes(gzip.compress((folder / "ratings.csv").read_bytes()))
        (folder / "ratings.csv").unlink()
    asked, source = request(tmp_path, from_file=given), open_source("movielens-25m")
    source.fetch(asked, ignore)
    assert [file.exists() for table in source.tables(asked.folder) for file in table.files] == [True, True]
    (folder / "movies.csv").unlink(missing_ok=True)
    (given / "ml-25m.zip").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=r"has neither ml-25m\.zip nor (ratings|movies)\.csv"):
        source.fetch(request(given, from_file=given), ignore)


def test_real_latest_small(shared_data: Path, tmp_path: Path, watcher: Watcher) -> None:
    source = open_source("movielens-latest-small")
    asked = request(tmp_path, from_file=shared_data / "ml-latest-small.zip")
    source.fetch(asked, watcher)
    ratings, movies = source.tables(asked.folder)
    assert not watcher.texts("warning")
    assert ratings.files[0].read_bytes().count(b"\n") - 1 == source.info.rows
    assert movies.files[0].read_bytes().startswith(b"movieId,title,genres\r\n")


def test_catalog_has_every_name_once() -> None:
    lines = {info.name: info for info in catalog()}
    assert {"movielens-25m", "synthetic-25m", "files"} <= set(lines)
    assert lines["movielens-25m"].rows == lines["synthetic-25m"].rows == 25_000_095
    assert lines["movielens-25m"].size == 261_978_986
    assert "GroupLens" in lines["movielens-25m"].notice


def test_options_and_unknown_datasets_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.sise: unknown option") as caught:
        open_source("movielens-25m", {"sise": 3})
    assert caught.value.hint == "movielens-25m has no options"
    with pytest.raises(ConfigError, match=r"did you mean movielens-25m\?"):
        open_source("movielens-25n")
