"""Published datasets: files of the publishers, odd rows included, as typed tables."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recsys_cli import registry
from recsys_cli.data import FetchRequest, open_source, published
from recsys_cli.data.archive import unpack
from recsys_cli.data.fetch import Digest
from recsys_cli.data.published import described
from recsys_cli.data.published.reviews import fields, literal
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.events import ignore
from tests.publishers import OF_PROTOCOLS, SAMPLES
from tests.unit.data.wayward import Server, Watcher, make_zip, written

OPTIONS: dict[str, dict[str, Any]] = {"criteo-1tb": {"days": [0, 1]}}
ROWS = {"criteo-kaggle": 120, "criteo-1tb": 120, "avazu": 120, "rees46": 264, "mind-small": 264, "mind-large": 264}


def fetched(name: str, given: Path, folder: Path, **options: object) -> dict[str, pa.Table]:
    """Return the tables of a dataset by name, from local files; malformed rows are skipped."""
    folder.mkdir(exist_ok=True)
    source = open_source(name, {**OPTIONS.get(name, {}), **options})
    source.fetch(FetchRequest(folder, folder / "cache", from_file=given), ignore)
    tables = source.tables(folder)
    assert {file for table in tables for file in table.files} == {path for path in folder.rglob("*") if path.is_file()}
    return {table.name: Reader(table, skip_bad=True).read() for table in tables}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """An empty folder for a publisher's files."""
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


@pytest.fixture
def sample(given: Path, tmp_path: Path) -> Any:
    """The tables of a dataset's sample."""
    return lambda name: fetched(name, SAMPLES[name](given), tmp_path / "raw")


def test_every_description_is_in_the_catalog_with_a_sample() -> None:
    own = [name for name, path in registry.DATASETS.items() if path == "recsys_cli.data.published:source"]
    assert sorted(own) == sorted(path.stem for path in Path(published.__file__).parent.glob("*.yaml"))
    assert sorted(one for one in own if "movielens-" not in one) == sorted([*SAMPLES, *OF_PROTOCOLS])
    for name in own:
        assert open_source(name).info.access == "download" or described(name).steps
        assert described(name).homepage.startswith("http")
        assert all(one.url for one in described(name).downloads) == (described(name).access == "download")


@pytest.mark.parametrize("name", SAMPLES)
def test_all_rows_are_read(name: str, sample: Any) -> None:
    tables = sample(name)
    assert next(iter(tables)) == "interactions"
    assert tables["interactions"].num_rows == ROWS.get(name, 133 if name == "lastfm-360k" else 132)


def test_criteo_has_missing_values_and_hexadecimal_tokens(sample: Any) -> None:
    first = sample("criteo-kaggle")["interactions"].slice(0, 1).to_pylist()[0]
    assert (first["label"], first["I2"], first["I7"], first["C1"], first["C11"]) == (1, -3, None, "00000001", None)


def test_rees46_has_times_in_utc_and_missing_brands(sample: Any) -> None:
    events = sample("rees46")["interactions"]
    assert events.column("event_time")[0].as_py() == dt.datetime(2019, 10, 1)
    assert events.column("event_time")[132].as_py() == dt.datetime(2019, 11, 1)
    assert events.column("brand").null_count == events.column("category_code").null_count == 30
    assert events.column("user_session").null_count == 2


def test_avazu_ids_are_text(sample: Any) -> None:
    assert sample("avazu")["interactions"].column("id")[0].as_py() == "10000000000000000000"


def test_yoochoose_has_categories_as_text_and_prices_of_0(sample: Any) -> None:
    tables = sample("yoochoose")
    assert set(tables["interactions"].column("category").to_pylist()) == {"0", "S", "7", "2089045122"}
    assert tables["buys"].column("price").to_pylist() == [0, 12_462]


def test_retailrocket_times_are_in_milliseconds(sample: Any) -> None:
    events = sample("retailrocket")["interactions"]
    assert events.column("timestamp")[0].as_py() == dt.datetime(2015, 6, 2, 5, 2, 12, 117_000)
    assert events.column("transactionid").null_count == 88


def test_mind_has_a_row_per_shown_news(sample: Any) -> None:
    tables = sample("mind-small")
    shown = tables["interactions"].to_pylist()
    assert [row["news_id"] for row in shown[:3]] == ["N1", "N2", "N3"]
    assert [row["click"] for row in shown[:4]] == [0, 0, 0, 1]
    assert shown[0]["time"] == dt.datetime(2019, 11, 11, 13, 5, 58)
    assert {row["part"] for row in shown} == {"train", "dev"}
    assert len({row["impression_id"] for row in shown}) == 24
    histories = {row["user_id"]: row["history"] for row in shown}
    assert (histories["U0"], histories["U3"]) == (["N1", "N2"], [])
    assert histories["U4"] == [f"N{click % 12}" for click in range(10, 60)]  # the latest 50
    assert tables["news"].num_rows == 14
    assert tables["news"].column("title")[0].as_py() == 'The "Brands" of 0'


def test_amazon_reviews_leave_out_fields_without_a_type(sample: Any) -> None:
    tables = sample("amazon-reviews-2023")
    assert tables["interactions"].column("timestamp")[0].as_py() == dt.datetime(2020, 5, 6, 14, 8, 48, 923_000)
    assert tables["products"].column("store").null_count == 1
    assert tables["products"].column("categories").to_pylist()[:2] == [[], ["Hair"]]


def test_lastfm_rows_with_other_fields_are_bad(sample: Any) -> None:
    plays = sample("lastfm-360k")["interactions"]
    assert plays.column("user")[132].as_py() == "sep 20, 2008"
    assert plays.column("artist")[0].as_py() == 'artist "1" ü'
    assert plays.column("mbid").null_count == 88


def test_hetrec_artists_have_the_key_of_the_interactions(sample: Any) -> None:
    tables = sample("hetrec-lastfm")
    assert tables["artists"].column_names[:2] == ["artistID", "name"]
    assert set(tables["interactions"].column("artistID").to_pylist()) == set(
        tables["artists"].column("artistID").to_pylist()
    )


def test_book_crossing_titles_are_whole(sample: Any) -> None:
    tables = sample("book-crossing")
    books = {row["isbn"]: row for row in tables["books"].to_pylist()}
    assert books["030000000X"]["title"] == 'The "Real" J. & Co; a tale'
    assert books["030000001X"]["title"] == "Misérables"
    merged = books["030000002X"]
    assert (merged["title"], merged["author"]) == ("Creating the X-Men (Level 4)", "Michael Teitelbaum")
    assert books["030000005X"]["year"] is None
    assert tables["users"].column("age").to_pylist()[:2] == [18, None]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('"1";"a;b";"c"', ["1", "a;b", "c"]),
        (r'"1";"a \"b\" c";NULL', ["1", 'a "b" c', None]),
        ('1;;"x"', ["1", "", "x"]),
        ('"1";"open', []),
        ('"1"x;"2"', []),
    ],
)
def test_book_crossing_fields(line: str, expected: list[str | None]) -> None:
    assert fields(line) == expected


def test_steam_reads_literals_and_runs_nothing(given: Path, tmp_path: Path, watcher: Watcher) -> None:
    source = open_source("steam")
    (tmp_path / "raw").mkdir()
    source.fetch(FetchRequest(tmp_path / "raw", tmp_path, from_file=SAMPLES["steam"](given)), watcher)
    assert "steam_reviews.json.gz: 2 malformed lines are skipped, the first is line 133" in watcher.texts("warning")
    games = Reader(source.tables(tmp_path / "raw")[1]).read()
    assert games.column("genres")[0].as_py() == ["Action", "Indie"]


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", "{'a': open('x')}", "{'a': " + "-" * 200 + "1}", "{'a': " + "(" * 200, "{'a': '" + "x" * 200_000],
)
def test_steam_refuses_other_lines(line: str) -> None:
    assert literal(line) == {}


def test_real_toys_have_the_published_figures(shared_data: Path, tmp_path: Path) -> None:
    rows = fetched("amazon-5core-toys", shared_data / "s3rec" / "Toys_and_Games.txt", tmp_path / "raw")["interactions"]
    users, items = (len(rows.column(name).unique()) for name in ("user", "item"))
    assert (users, items, rows.num_rows) == (19_412, 11_924, 167_597)
    assert rows.num_rows == open_source("amazon-5core-toys").info.rows


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("avazu", {}, r"take train\.gz: https://www\.kaggle\.com.*recsys download avazu --from-file train\.gz$"),
        (
            "criteo-1tb",
            {"days": [3, 4]},
            r"recsys download CONFIG --from-file FOLDER \(a folder with day_3\.gz, day_4\.gz\)",
        ),
    ],
)
def test_dataset_behind_a_login_names_the_file(
    name: str, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="cannot be downloaded here") as caught:
        open_source(name, options).fetch(FetchRequest(tmp_path, tmp_path), ignore)
    assert caught.value.hint is not None
    assert re.search(expected, caught.value.hint)


@pytest.mark.parametrize("name", SAMPLES)
def test_failed_download_names_the_files_and_the_next_command(name: str, server: Server, tmp_path: Path) -> None:
    source = open_source(name)
    with pytest.raises(DataError) as caught:
        source.fetch(FetchRequest(tmp_path, tmp_path / "cache", mirror=server.url), ignore)
    files = [one.name for one in source.downloads]
    hint = str(caught.value.hint)
    assert f"{source.info.homepage}; then run: recsys download {name} --from-file " in hint
    assert hint.rpartition("--from-file ")[2].startswith("FOLDER (a folder with " if len(files) > 1 else files[0])
    assert all(file in hint for file in (files if len(files) <= 4 else [files[0], files[-1]]))


def test_mirror_serves_every_file_of_a_dataset(server: Server, given: Path, tmp_path: Path) -> None:
    SAMPLES["criteo-1tb"](given)
    server.files["m/day_0.gz"] = (given / "day_0.gz").read_bytes()
    server.files["m/day_1.gz"] = gzip.compress((given / "day_1").read_bytes())
    source = open_source("criteo-1tb", {"days": [0, 1]})
    (tmp_path / "raw").mkdir()
    facts = source.fetch(FetchRequest(tmp_path / "raw", tmp_path / "cache", mirror=f"{server.url}/m"), ignore)
    assert facts["md5"] == {
        name: hashlib.md5(server.files[f"m/{name}"]).hexdigest() for name in ("day_0.gz", "day_1.gz")
    }
    assert Reader(source.tables(tmp_path / "raw")[0]).read().num_rows == 120
    assert not [path for path in (tmp_path / "cache").rglob("*.gz") if path.is_file()]


def test_download_with_another_digest_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["MINDsmall_train.zip"] = make_zip({"behaviors.tsv": b"x", "news.tsv": b"x"})
    with pytest.raises(DataError, match=r"MINDsmall_train\.zip is not the expected file"):
        open_source("mind-small").fetch(FetchRequest(tmp_path, tmp_path / "cache", mirror=server.url), ignore)


def test_identity_depends_on_the_selected_parts() -> None:
    october, both = open_source("rees46", {"months": ["2019-Oct"]}), open_source("rees46")
    assert october.identity() != both.identity()
    with pytest.raises(ConfigError, match=r"dataset\.months\.0: Input should be '2019-Oct'"):
        open_source("rees46", {"months": ["2019-Sep"]})


def test_local_files_are_complete(given: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file") as caught:
        fetched("mind-small", given / "gone.zip", tmp_path / "a")
    assert caught.value.hint == "--from-file takes a folder with MINDsmall_train.zip, MINDsmall_dev.zip"
    folder = SAMPLES["mind-small"](given)
    with pytest.raises(ConfigError, match="is one of 2 archives"):
        fetched("mind-small", folder / "MINDsmall_dev.zip", tmp_path / "b")
    (folder / "MINDsmall_dev.zip").unlink()
    with pytest.raises(ConfigError, match=r"has neither MINDsmall_dev\.zip nor behaviors\.tsv"):
        fetched("mind-small", folder, tmp_path / "c")
    with pytest.raises(ConfigError, match="cannot be unpacked here") as caught:
        fetched("yoochoose", written(given / "yoochoose-data.7z", b"7z"), tmp_path / "d")
    assert "7z x yoochoose-data.7z" in str(caught.value.hint)


def test_unpacked_folder_is_as_good_as_the_archive(given: Path, tmp_path: Path) -> None:
    for part in ("train", "dev"):
        inner = given / f"MINDsmall_{part}"
        inner.mkdir()
        (inner / "behaviors.tsv").write_text(f"1\tU{part}\t11/11/2019 9:05:58 AM\t\tN1-1 N2-0\n")
        (inner / "news.tsv.gz").write_bytes(gzip.compress(b"N1\tnews\tx\tT\tA\tu\t[]\t[]\n"))
    tables = fetched("mind-small", given, tmp_path / "raw")
    assert tables["news"].num_rows == 1
    shown = tables["interactions"]
    assert shown.column("user_id").to_pylist() == ["Utrain", "Utrain", "Udev", "Udev"]
    assert (given / "MINDsmall_dev" / "behaviors.tsv").is_file()


def test_converted_files_name_the_bad_line(given: Path, tmp_path: Path) -> None:
    SAMPLES["amazon-reviews-2023"](given)
    (given / "All_Beauty.jsonl.gz").write_bytes(gzip.compress(b'{"user_id": "a"}\n{"user_id": \n'))
    with pytest.raises(DataError, match=r"All_Beauty\.jsonl\.gz:2: not a review"):
        fetched("amazon-reviews-2023", given, tmp_path / "a")
    with pytest.raises(
        DataError,
        match=r"Toys_and_Games\.txt: 1 of 1 lines have another format, the first is line 1: '\{\}'",
    ):
        fetched("amazon-5core-toys", written(given / "x.txt", b"{}\n"), tmp_path / "b")
    for part in ("train", "dev"):
        packed = make_zip({"behaviors.tsv": b"7\tU1\t11/11/2019 9:05:58 AM\tN1\tN1 N2\n", "news.tsv": b"x\n"})
        (given / f"MINDsmall_{part}.zip").write_bytes(packed)
    with pytest.raises(DataError, match="impression 7 has 'N1', not NEWS-0 or NEWS-1"):
        fetched("mind-small", given, tmp_path / "c")


def test_tar_members_stay_in_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as target:
        for name, kind in (("../../train.txt", tarfile.REGTYPE), ("x/link.txt", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, 3 if kind == tarfile.REGTYPE else 0, "/etc/passwd"
            target.addfile(info, io.BytesIO(b"abc"))
    folder = tmp_path / "to"
    folder.mkdir()
    unpack(archive, ["train.txt"], folder, emit=ignore)
    assert [path.name for path in folder.iterdir()] == ["train.txt"]
    with pytest.raises(DataError, match=r"lacks link\.txt"):
        unpack(archive, ["link.txt"], folder, emit=ignore)
    with pytest.raises(DataError, match=r"is damaged, or of another format"):
        unpack(written(tmp_path / "b.tar.gz", archive.read_bytes()[:40]), ["train.txt"], folder, emit=ignore)


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("gowalla-m1", "train.txt", "0 a b\n1 c\n"),
        ("movielens1m-m1", "train_data.json", "[1, 2]"),
        ("movielens1m-m1", "train_data.json", "{"),
        ("ml1m-ncf", "ml-1m.test.negative", "(0;1)\t2\n(1;1)\t2\n"),
        ("ml1m-ncf", "ml-1m.test.rating", "0,31,4,978300019\n1,2,3,4\n"),
        ("ml20m-liang", "ratings.csv", "user,item,rating\n1,2,3\n"),
        ("ml20m-liang", "ratings.csv", "userId,movieId,rating,timestamp\n1,2,3,4\n,2,3,4\n"),
    ],
)
def test_another_file_than_the_publishers_is_refused(
    name: str, file: str, text: str, given: Path, tmp_path: Path
) -> None:
    OF_PROTOCOLS[name](given)
    (given / "ml-20m.zip").unlink(missing_ok=True)
    (given / file).write_text(text)
    with pytest.raises(DataError, match=re.escape(file)) as caught:
        fetched(name, given, tmp_path / "raw")
    assert "pass the" in str(caught.value.hint)


def test_packed_lists_are_read(given: Path, tmp_path: Path) -> None:
    OF_PROTOCOLS["movielens1m-m1"](given)
    plain = fetched("movielens1m-m1", given, tmp_path / "plain")
    for split in ("train_data", "test_data"):
        (given / f"{split}.json.gz").write_bytes(gzip.compress((given / f"{split}.json").read_bytes()))
        (given / f"{split}.json").unlink()
    assert fetched("movielens1m-m1", given, tmp_path / "packed") == plain


def test_digests_of_a_repository_are_blob_ids(given: Path) -> None:
    (given / "file").write_bytes(b"what is up, doc?")
    assert Digest("bd9dbf5aae1a3862dd1526723246b20206e5fc37", "git").matches(given / "file")  # of the Git book
