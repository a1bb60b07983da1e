from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from recsys_cli.data import FetchRequest, Source, open_given, open_source
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import ignore


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("plays/2.csv", "plays/1.csv", "plays/10.csv", "songs.tsv", "artists.parquet", "odd[1].csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("user,song\n1,2\n")
    return tmp_path


def opened(**options: object) -> Source:
    return open_source("files", options)


def test_tables_are_described_by_their_suffix(here: Path) -> None:
    source = opened(interactions="plays/*.csv", tables={"songs": "songs.tsv", "artists": ["artists.parquet"]})
    plays, songs, artists = source.tables(here / "unused")
    assert (plays.name, plays.format, plays.separator, plays.columns) == ("interactions", "csv", ",", ())
    assert [file.as_posix() for file in plays.files] == ["plays/1.csv", "plays/10.csv", "plays/2.csv"]
    assert (songs.name, songs.separator, artists.format) == ("songs", "\t", "parquet")


def test_fetch_copies_nothing_and_counts(here: Path) -> None:
    (here / "raw").mkdir()
    facts = opened(interactions="plays/*.csv").fetch(FetchRequest(here / "raw", here / "cache"), ignore)
    assert facts == {"files": 3}
    assert not list((here / "raw").iterdir())


def test_name_with_brackets_is_a_path_first(here: Path) -> None:
    assert opened(interactions=["odd[1].csv"]).tables(here)[0].files == (Path("odd[1].csv"),)


def test_identity_changes_with_the_file(here: Path) -> None:
    source = opened(interactions="plays/*.csv")
    before = source.identity()
    assert before == source.identity()
    os.utime(here / "plays/1.csv", ns=(1, 1))
    assert before != source.identity()


def test_identity_sees_a_new_file_of_the_glob(here: Path) -> None:
    source = opened(interactions="plays/*.csv")
    before = source.identity()
    (here / "plays/3.csv").write_text("user,song\n")
    assert before != source.identity()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("plays/*.tsv", "no file matches plays"),
        ("gone.csv", "there is no file gone.csv"),
        ("empty", "there is no file in folder empty"),
    ],
)
def test_missing_files_are_named(here: Path, pattern: str, message: str) -> None:
    (here / "empty").mkdir()
    with pytest.raises(DataError, match=f"table 'interactions': {message}"):
        opened(interactions=pattern).fetch(FetchRequest(here, here), ignore)


@pytest.mark.parametrize("paths", [["plays/1.csv", "songs.tsv"], ["artists.parquet", "plays/*.csv"]])
def test_mixed_suffixes_are_refused(here: Path, paths: list[str]) -> None:
    with pytest.raises(ConfigError, match="as one table"):
        opened(interactions=paths).tables(here)


def test_unknown_suffix_is_refused(here: Path) -> None:
    (here / "plays.xlsx").touch()
    with pytest.raises(ConfigError, match=r"end in \.xlsx") as caught:
        opened(interactions="plays.xlsx").tables(here)
    assert ".parquet" in str(caught.value.hint)


def test_all_invalid_options_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        opened(interaction="a.csv", tables={"interactions": "b.csv"})
    assert "dataset.interactions: is required" in caught.value.message
    assert "dataset.interaction: unknown option (did you mean interactions?)" in caught.value.message
    assert "'interactions' is a key next to tables" in caught.value.message


def test_folder_is_expanded_to_its_files(here: Path) -> None:
    for name in ("plays/_SUCCESS", "plays/.1.csv.crc", "plays/deep/0.csv", "plays/.tmp/9.csv"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("user,song\n")
    for path in ("plays", "plays/", str(here / "plays")):
        files = opened(interactions=path).tables(here)[0].files
        assert [Path(str(file)).relative_to(path).as_posix() for file in files] == [
            "1.csv",
            "10.csv",
            "2.csv",
            "deep/0.csv",
        ]


def test_glob_of_folders_is_their_files(here: Path) -> None:
    for name in ("days/day=2/b.csv", "days/day=2/_SUCCESS", "days/day=1/a.csv", "days/day=1/.a.csv.crc"):
        (here / name).parent.mkdir(exist_ok=True, parents=True)
        (here / name).write_text("user,song\n")
    files = opened(interactions="days/*").tables(here)[0].files
    assert [str(file) for file in files] == ["days/day=1/a.csv", "days/day=2/b.csv"]


@pytest.mark.parametrize("pattern", ["plays/*", "./plays/**", "plays/**/*.*", "{}/plays/**/*.c*"])
def test_globs_leave_out_marks_of_writers(here: Path, pattern: str) -> None:
    for name in ("_SUCCESS", "_committed_1.csv", ".1.csv.crc", "_temporary/0/9.csv", "_other.csv"):
        (here / "plays" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "plays" / name).write_text("user,song\n")
    files = opened(interactions=pattern.format(here)).tables(here)[0].files
    assert [file.name for file in files] == ["1.csv", "10.csv", "2.csv"]
    (named,) = opened(interactions="plays/_o*.csv").tables(here)[0].files
    assert named.name == "_other.csv"


def test_files_of_a_folder_agree_in_partition_columns(here: Path) -> None:
    (here / "plays/year=2026").mkdir()
    (here / "plays/year=2026/1.csv").write_text("user,song\n")
    with pytest.raises(DataError, match=r"has the partition columns year, and plays/1\.csv \(none\)"):
        opened(interactions="plays").tables(here)
    assert len(opened(interactions="plays/**/*.csv").tables(here)[0].files) == 4


def test_duplicate_files_are_refused(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"plays/1\.csv is matched twice"):
        opened(interactions=["plays/*.csv", "plays/1.csv"]).tables(here)


def test_compressed_and_plain_files_form_one_table(here: Path) -> None:
    for name in ("3.csv.gz", "4.csv.zst", "5.CSV.XZ"):
        (here / "plays" / name).touch()
    (table,) = opened(interactions="plays/*").tables(here)
    assert (len(table.files), table.format, table.separator) == (6, "csv", ",")
    (here / "plays/6.gz").touch()
    with pytest.raises(ConfigError, match=r"cannot read files that end in , \.csv as one table"):
        opened(interactions="plays/*").tables(here)


def test_format_option_overrides_the_suffix(here: Path) -> None:
    (here / "u.data").write_text("1|2\n")
    (table,) = opened(interactions={"files": "u.data", "separator": "|", "names": ["user", "song"]}).tables(here)
    assert (table.format, table.separator, table.header) == ("csv", "|", False)
    assert [(column.name, column.dtype, column.nullable) for column in table.columns] == [
        ("user", None, True), ("song", None, True),
    ]  # fmt: skip
    assert opened(interactions={"files": "u.data", "format": "parquet"}).tables(here)[0].format == "parquet"
    assert opened(interactions={"files": "u.data", "format": "csv"}).tables(here)[0].separator == ","


def test_only_declared_columns_are_described(here: Path) -> None:
    options = {"files": "songs.tsv", "types": {"zip": "string", "ids": "int64"}, "lists": {"genres": "|", "ids": ";"}}
    (table,) = opened(interactions=options).tables(here)
    assert [(c.name, c.dtype, c.separator, c.empty) for c in table.columns] == [
        ("zip", "string", None, None), ("ids", "int64", ";", ""), ("genres", "string", "|", ""),
    ]  # fmt: skip
    assert (table.separator, table.header, table.quote) == ("\t", True, '"')


def test_text_options_are_refused_for_parquet(here: Path) -> None:
    options = {"files": "artists.parquet", "quote": None, "separator": ";", "types": {"user": "string"}}
    with pytest.raises(
        ConfigError, match="table 'interactions': separator, quote is for text, but its files are Parquet"
    ):
        opened(interactions=options).tables(here)


def test_identity_changes_with_the_dialect(here: Path) -> None:
    plain = opened(interactions="plays/1.csv").identity()
    assert opened(interactions={"files": ["plays/1.csv"], "quote": '"', "encoding": "utf-8"}).identity() == plain
    assert opened(interactions={"files": "plays/1.csv", "types": {"user": "string"}}).identity() != plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (5, "dataset.interactions: has to be a path, a list of paths, or a mapping with files"),
        ({"files": []}, "dataset.interactions.files: Tuple should have at least 1 item"),
        ({"files": "a", "types": {"zip": "text"}}, "dataset.interactions.types.zip: Input should be 'int32'"),
        ({"files": "a", "quote": "ab"}, "dataset.interactions.quote: String should have at most 1 character"),
        ({"files": "a", "lists": {"genres": ""}}, "dataset.interactions.lists.genres.separator: String should have"),
        ({"files": "a", "names": ["x"], "lists": {"y": "|"}}, "dataset.interactions: lists has y, not in names"),
        ({"files": "a", "names": ["x", "x"]}, "dataset.interactions: names has a duplicate"),
    ],
)
def test_wrong_options_of_a_table_are_named(options: object, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as found:
        opened(interactions=options)
    assert "of a table given as a mapping: files, format, separator" in str(found.value.hint)


@pytest.mark.parametrize(
    ("own", "path", "expected"),
    [
        ({"files": "songs.tsv", "separator": ";"}, "new.jsonl.gz", ("jsonl", ",")),
        ({"files": "songs.tsv", "separator": ";"}, "new.csv.gz", ("csv", ";")),
        ({"files": "songs.tsv", "format": "jsonl"}, "new.tsv", ("csv", "\t")),
        ({"files": "songs.tsv", "format": "jsonl"}, "new.log", ("jsonl", ",")),
    ],
)
def test_given_rows_have_their_own_format(here: Path, own: object, path: str, expected: tuple[str, str]) -> None:
    (here / path).touch()
    (table,) = open_given("files", {"interactions": own}, path).tables(here)
    assert (table.format, table.separator) == expected


@pytest.mark.parametrize("path", ["new.parquet", "new.jsonl", "new.csv"])
def test_given_rows_are_reshaped_as_those_of_the_dataset(here: Path, path: str) -> None:
    (here / path).touch()
    lists = {"separator": " ", "empty": "-"}
    own = {"files": "songs.tsv", "lists": {"song": lists}, "explode": "song", "clicks": "click", "order": "position"}
    (table,) = open_given("files", {"interactions": own}, path).tables(here)
    assert (table.explode, table.clicks, table.order) == ("song", "click", "position")
    (column,) = table.columns
    assert (column.separator, column.empty) == (" ", "-")
