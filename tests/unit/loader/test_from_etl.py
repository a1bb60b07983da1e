"""Lists of numbers, weights and several labels from etl to a batch."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.batch import Ragged
from recsys_cli.config import RunConfig
from recsys_cli.loader import Loader, check_targets
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace
from tests.engines import every_engine

MOVIES = pa.table({
    "movie": [0, 1, 2],
    "genres": [["a", "b"], [], ["b"]],
    "genre_scores": pa.array([[0.25, 2.0], [], [1.5]], pa.list_(pa.float64())),
    "years": pa.array([[1999, 2001], None, []], pa.list_(pa.int64())),
})  # fmt: skip
ROWS = 60


def raw(number: int) -> dict[str, Any]:
    """An interaction with its number in `row`."""
    tags = [f"t{place}" for place in range(number % 4)]
    return {
        "row": float(number), "user": number % 7, "movie": number % 3, "tags": tags,
        "tag_scores": [number + place / 4 for place in range(len(tags))],
        "prices": None if number % 5 == 0 else [number / 2, 3.0][: number % 3],
        "rating": number % 5 + 1, "clicked": number % 2, "weight": number % 3 / 2,
    }  # fmt: skip


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> Any:
    """Prepare the interactions in one split: prepare(features, layout=…, engine=…)."""
    monkeypatch.chdir(tmp_path)
    table = pa.Table.from_pylist([raw(number) for number in range(ROWS)])
    pq.write_table(table, "rows.parquet", row_group_size=13)
    pq.write_table(table.slice(0, 9), "valid.parquet")
    pq.write_table(MOVIES, "movies.parquet")

    def run(features: dict[str, Any], **how: str) -> PreparedData:
        document = {
            "dataset": {"name": "files", "interactions": "rows.parquet", "tables": {"movies": "movies.parquet"}},
            "split": {"method": "files", "train": "rows.parquet", "valid": "valid.parquet"},
            "features": features,
            "etl": how,
        }
        return etl(RunConfig.model_validate(document), workspace).artifact

    return run


def lists(feature: Any) -> list[tuple[list[float], list[float] | None]]:
    """Each row's elements and their weights."""
    assert isinstance(feature, Ragged)
    weights = feature.weights
    return [
        (feature.values[a:b].tolist(), None if weights is None else weights[a:b].tolist())
        for a, b in pairwise(feature.offsets.tolist())
    ]


FEATURES: dict[str, Any] = {
    "user": "user", "item": "movie", "label": ["liked", "clicked"], "weight": "weight",
    "list_weights": {"tags": "tag_scores", "genres": "genre_scores"},
    "ops": [
        {"op": "JoinExternal", "table": "movies", "on": "movie", "columns": ["genres", "genre_scores", "years"]},
        {"op": "Categorify", "columns": ["user", "movie", "genres", "tags"]},
        {"op": "Clip", "columns": ["prices", "row"], "min_value": 2},
        {"op": "LambdaOp", "expression": "clicked", "output": "clicked", "dtype": "int8"},
        {"op": "LambdaOp", "expression": "rating > 3", "output": "liked", "dtype": "int8"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("layout", ["star", "flat"])
@every_engine
def test_lists_of_numbers_weights_and_labels_arrive(prepare: Any, name: str, layout: str) -> None:
    data = prepare(FEATURES, layout=layout, engine=name)
    check_targets(data)
    batches = list(Loader(data, "train", batch_size=16, shuffle=True))

    words = pq.read_table(data.vocabulary("tags")).column("value").to_pylist()
    scores = {0: [0.25, 2.0], 1: [], 2: [1.5]}
    genres = {0: [4, 3], 1: [], 2: [3]}
    years = {0: [1999.0, 2001.0], 1: [], 2: []}
    seen = []
    for batch in batches:
        assert set(batch.features) == {"user", "movie", "tags", "prices", "row", "genres", "years"}
        assert list(batch.labels) == ["liked", "clicked"]
        assert batch.weight is not None
        columns = {name: lists(batch.features[name]) for name in ("tags", "prices", "genres", "years")}
        for place, number in enumerate(batch.features["row"].tolist()):  # type: ignore[union-attr]
            told = int(number) if number > 2 else None
            if told is None:  # clipped
                continue
            row = raw(told)
            ids = [words.index(tag) + 3 for tag in row["tags"]]
            assert columns["tags"][place] == (ids, row["tag_scores"])
            assert columns["prices"][place] == ([max(price, 2) for price in row["prices"] or []], None)
            assert columns["genres"][place] == (genres[row["movie"]], scores[row["movie"]])
            assert columns["years"][place] == (years[row["movie"]], None)
            assert float(batch.weight[place]) == row["weight"]
            assert {name: float(label[place]) for name, label in batch.labels.items()} == {
                "liked": float(row["rating"] > 3), "clicked": float(row["clicked"]),
            }  # fmt: skip
            seen.append(told)
    assert sorted(seen) == list(range(3, ROWS))
    (stored,) = (batch.weight for batch in Loader(data, "train", batch_size=ROWS))
    assert stored is not None
    assert read_interactions(data, "train").weights.tolist() == stored.tolist()  # type: ignore[union-attr]


def test_histories_of_groupby_arrive_weighted_by_their_ratings(prepare: Any) -> None:
    features = {
        "user": "user", "item": "movie_last", "label": "liked", "list_weights": {"movie_list": "rating_list"},
        "ops": [
            {"op": "Groupby", "by": "user", "order_by": "row",
             "aggs": {"movie": ["list", "last"], "rating": ["list", "last"], "row": "list"}},
            {"op": "Categorify", "columns": ["user", "movie_last", "movie_list"]},
            {"op": "LogOp", "columns": ["row_list"]},
            {"op": "LambdaOp", "expression": "rating_last > 3", "output": "liked", "dtype": "int8"},
        ],
        "drop": ["rating_last"],
    }  # fmt: skip
    data = prepare(features)
    batch = next(iter(Loader(data, "train", batch_size=100)))
    movies = pq.read_table(data.vocabulary("movie_list")).column("value").to_pylist()
    users = pq.read_table(data.vocabulary("user")).column("value").to_pylist()
    found = dict(zip(batch.features["user"].tolist(), lists(batch.features["movie_list"]), strict=True))  # type: ignore[union-attr]
    logs = dict(zip(batch.features["user"].tolist(), lists(batch.features["row_list"]), strict=True))  # type: ignore[union-attr]
    assert set(batch.features) == {"user", "movie_last", "movie_list", "row_list"}
    for user in range(7):
        rows = [raw(number) for number in range(ROWS) if number % 7 == user]
        encoded = users.index(user) + 3
        history = [movies.index(row["movie"]) + 3 for row in rows]
        assert found[encoded] == (history, [row["rating"] for row in rows])
        assert len(logs[encoded][0]) == len(rows)
    last = batch.features["movie_list"].padded(2)[0]  # type: ignore[union-attr]
    for user, pair in zip(batch.features["user"].tolist(), last.tolist(), strict=True):  # type: ignore[union-attr]
        assert pair == found[user][0][-2:]


def test_the_first_label_is_the_main_one_whichever_op_comes_first(prepare: Any) -> None:
    schema = prepare(FEATURES).schema
    assert [column.name for column in schema.labels] == ["liked", "clicked"]
    assert schema.label.name == "liked"
    turned = prepare({**FEATURES, "label": ["clicked", "liked"]})
    assert turned.schema.label.name == "clicked"
    swapped = {"liked": "clicked", "clicked": "liked"}
    assert turned.schema.names == tuple(swapped.get(name, name) for name in schema.names)
    batch = next(iter(Loader(turned, "valid", batch_size=9)))
    assert batch.labels["clicked"].tolist() == [raw(number)["clicked"] for number in range(9)]
