"""Titles come from the table that has them beside the ids of the items, and their absence is no error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rated import FEATURES

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.etl.titles import read_titles

IDS = pa.array([7, 1, 9, 2], pa.int64())
MOVIES = """\
movieId,year,title,local
1,1995,Toy Story,Spielzeug
2,1996,"Heat, hot",Hitze
7,1997,  ,Leer
8,1998,Nobody met it,Niemand
"""


@pytest.fixture(autouse=True)
def _tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ratings.csv").write_text("userId,movieId,rating\n1,1,5\n")
    Path("movies.csv").write_text(MOVIES)
    Path("users.csv").write_text("userId,name\n1,Ann\n")


def config(**tables: str) -> RunConfig:
    dataset: dict[str, Any] = {"name": "files", "interactions": "ratings.csv", "tables": tables}
    return RunConfig.model_validate({"dataset": dataset, "features": FEATURES})


def titles(found: pa.Array | None) -> list[str | None] | None:
    return None if found is None else found.to_pylist()


def test_titles_are_in_the_order_of_the_ids_and_null_where_there_is_none() -> None:
    found = read_titles(config(people="users.csv", movies="movies.csv"), Path(), IDS, title=None)
    assert titles(found) == [None, "Toy Story", None, "Heat, hot"]


def test_another_column_may_be_the_title() -> None:
    found = read_titles(config(movies="movies.csv"), Path(), IDS, title="local")
    assert titles(found) == ["Leer", "Spielzeug", None, "Hitze"]


def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(
        ConfigError, match="no table has a column 'heading' beside movieId; there are year, title, local"
    ):
        read_titles(config(movies="movies.csv"), Path(), IDS, title="heading")


def test_without_a_table_of_items_there_are_no_titles() -> None:
    assert read_titles(config(people="users.csv"), Path(), IDS, title=None) is None


def test_data_that_is_gone_or_broken_is_no_error() -> None:
    assert read_titles(config(movies="gone.csv"), Path(), IDS, title=None) is None
    Path("movies.csv").write_text("")
    assert read_titles(config(movies="movies.csv"), Path(), IDS, title=None) is None


def test_ids_of_another_kind_are_matched_where_they_can_be() -> None:
    text = pa.array(["2", "x"])
    assert titles(read_titles(config(movies="movies.csv"), Path(), text, title=None)) == ["Heat, hot", None]
    Path("movies.csv").write_text("movieId,title\nabc,A letter\n")
    assert read_titles(config(movies="movies.csv"), Path(), IDS, title=None) is None
