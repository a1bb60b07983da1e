from __future__ import annotations

import os
from pathlib import Path

import pytest

from recsys_cli.data import FetchRequest, Source, open_source
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


def test_all_wrong_options_come_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        opened(interaction="a.csv", tables={"interactions": "b.csv"})
    assert "dataset.interactions: is needed" in caught.value.message
    assert "dataset.interaction: unknown option (did you mean interactions?)" in caught.value.message
    assert "'interactions' is a key beside tables" in caught.value.message
