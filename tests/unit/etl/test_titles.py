"""Titles come from the table with item ids and titles; their absence is no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.etl.reading.reader import Inputs, Reader
from recsys_cli.etl.titles import read_item_values, read_titles
from recsys_cli.ops.fitted_plan import FittedPlan
from tests.rated import FEATURES

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


def test_titles_follow_the_ids_and_are_null_if_missing() -> None:
    found = read_titles(config(people="users.csv", movies="movies.csv"), Path(), IDS, title=None)
    assert titles(found) == [None, "Toy Story", None, "Heat, hot"]


def test_another_column_may_be_the_title() -> None:
    found = read_titles(config(movies="movies.csv"), Path(), IDS, title="local")
    assert titles(found) == ["Leer", "Spielzeug", None, "Hitze"]


def rated_with_titles(num_rows: int) -> None:
    """Write interactions with titles, except in the first row of an item."""
    rows = [f"{row},{row % 3},,1" if row < 3 else f"{row},{row % 3},Title {row % 3},1" for row in range(num_rows)]
    Path("ratings.csv").write_text("\n".join(["userId,movieId,title,rating", *rows, "9,2,Another title of 2,1"]))


def test_explicit_title_column_may_be_in_the_interactions() -> None:
    rated_with_titles(10)
    ids = pa.array([2, 7, 1])
    assert titles(read_titles(config(), Path(), ids, title="title")) == ["Title 2", None, "Title 1"]
    assert read_titles(config(), Path(), ids, title=None) is None
    assert read_titles(config(people="users.csv"), Path(), ids, title=None) is None


def test_dimension_table_precedes_the_interactions() -> None:
    rated_with_titles(10)
    found = read_titles(config(movies="movies.csv"), Path(), pa.array([2, 1]), title="title")
    assert titles(found) == ["Heat, hot", "Toy Story"]


def test_long_interactions_are_read_until_all_have_a_title(monkeypatch: pytest.MonkeyPatch) -> None:
    rated_with_titles(100)
    ids, batches = pa.array([2, 0, 1]), 0
    whole = Reader.batches

    def row_by_row(reader: Reader) -> Iterator[pa.Table]:
        nonlocal batches
        for table in whole(reader):
            for row in range(table.num_rows):
                batches += 1
                yield table.slice(row, 1)

    monkeypatch.setattr(Reader, "batches", row_by_row)
    assert titles(read_titles(config(), Path(), ids, title="title")) == ["Title 2", "Title 0", "Title 1"]
    assert batches == 6


def test_unknown_title_column_lists_the_columns() -> None:
    with pytest.raises(
        ConfigError,
        match="no table with movieId has a column 'heading'; the columns are year, title, local, userId, rating",
    ):
        read_titles(config(movies="movies.csv"), Path(), IDS, title="heading")


def test_no_dimension_table_means_no_titles() -> None:
    assert read_titles(config(people="users.csv"), Path(), IDS, title=None) is None


def test_missing_or_broken_raw_data_is_no_error() -> None:
    assert read_titles(config(movies="gone.csv"), Path(), IDS, title=None) is None
    Path("movies.csv").write_text("")
    assert read_titles(config(movies="movies.csv"), Path(), IDS, title=None) is None


def test_ids_of_another_type_are_cast() -> None:
    text = pa.array(["2", "x"])
    assert titles(read_titles(config(movies="movies.csv"), Path(), text, title=None)) == ["Heat, hot", None]
    Path("movies.csv").write_text("movieId,title\nabc,A letter\n")
    assert read_titles(config(movies="movies.csv"), Path(), IDS, title=None) is None


def test_raw_values_skip_the_bad_rows_of_the_etl() -> None:
    Path("movies.csv").write_text(f"{MOVIES}9,1999,A bad row,,\n")
    values = config(movies="movies.csv").model_dump() | {"etl": {"on_bad_rows": "skip"}}
    join = {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["year"]}
    values["features"]["ops"] = [join, *values["features"]["ops"]]
    joined = RunConfig.model_validate(values)
    inputs = Inputs.of(joined, Path())
    fitted = FittedPlan(joined.features, {"movies": inputs.joined["movies"].schema()}, {})
    fitted.__dict__["program"] = inputs.program
    found, listed = read_item_values(joined, Path(), IDS, fitted)
    assert found is not None
    assert listed is not None
    assert found["year"].to_pylist() == [1997, 1995, None, 1996]
    assert listed.to_pylist() == [True, True, False, True]
