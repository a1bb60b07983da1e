"""Filters over columns that ops of the plan overwrite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.errors import ConfigError
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run
from tests.served_runs import COLUMNS, ratings

OPS: list[dict[str, Any]] = [
    {"op": "LambdaOp", "expression": "price", "output": "price_raw"},
    {"op": "LambdaOp", "expression": "cost * 2", "output": "double"},
    {"op": "FillMedian", "columns": ["price", "year"], "add_binary_cols": True},
    {"op": "LogOp", "columns": ["price"]},
    {"op": "Bucketize", "columns": ["size"], "boundaries": [2.0]},
    {"op": "Rename", "columns": {"weight": "mass"}},
    {"op": "Normalize", "columns": ["mass"]},
    {"op": "ListSlice", "columns": ["genres"], "start": 1},
]


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    workspace = recsys.Workspace(str(tmp_path_factory.mktemp("prices") / "workspace"))
    ids = range(1, 46)
    movies = pl.DataFrame({
        "movieId": ids,
        "price": [None if number % 5 == 0 else float(number) for number in ids],
        "exact": [number + 0.99 for number in ids],
        "isbn": [9780306406000 + number for number in ids],
        "cost": [float(number) for number in ids],
        "size": [float(number % 4) for number in ids],
        "weight": [float(number) for number in ids],
        "year": [None if number == 7 else 1980 + number % 3 for number in ids],
        "genres": [[] if number == 9 else ["Drama", "War"] for number in ids],
        "studio": [None if number == 4 else "ÉCLAIR" for number in ids],
    })  # fmt: skip
    train = {"epochs": 1, "batch_size": 256, "device": "cpu"}
    values = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model="ease", train=train).model_dump()
    values["dataset"] = recsys.dataset_from_frames(workspace, ratings(), movies=movies)
    join = {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": movies.columns[1:]}
    encoded = {"op": "Categorify", "columns": ["userId", "movieId", "year", "genres", "studio"]}
    slice_last = OPS[-1]
    values["features"]["ops"] = [join, *OPS[:-1], encoded, slice_last, *values["features"]["ops"][1:]]
    config = recsys.load_config(values)
    recsys.etl(config, workspace, progress=False)
    return Recommender(served_run(recsys.train(config, workspace, progress=False), workspace))


def test_an_overwritten_column_is_refused(recommender: Recommender) -> None:
    with pytest.raises(ConfigError, match="Normalize changes") as raised:
        recommender.recommend([Query(user=1, where="mass < 1")])
    assert "LambdaOp" in str(raised.value.hint)


def test_the_list_of_features_leaves_overwritten_columns_out(recommender: Recommender) -> None:
    with pytest.raises(ConfigError) as raised:
        recommender.recommend([Query(user=1, where="nothing < 1")])
    listed = str(raised.value.hint).removeprefix("the features are ").split(";")[0].split(", ")
    assert {"movieId", "price_raw", "double", "cost", "price_filled", "genres"} <= set(listed)
    assert {"price", "size", "weight", "year", "isbn", "exact"} <= set(listed)
    assert "mass" not in listed


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("price < 10", {1, 2, 3, 4, 6, 7, 8, 9}),
        ("is_null(price)", set(range(5, 41, 5))),
        ("exact == 9.99", {9}),
        ("isbn > 9780306406038", {39, 40}),
        ("isbn == 9780306406004", {4}),
        ("size < 1 and movieId < 9", {4, 8}),
        ("year == 1981 and cost < 5", {1, 4}),
        ("price_raw < 10", {1, 2, 3, 4, 6, 7, 8, 9}),
        ("is_null(price_raw)", set(range(5, 41, 5))),
        ("cost < 3", {1, 2}),
        ("double <= 4", {1, 2}),
        ("genres contains Drama and cost < 3", {1, 2}),
        (
            "not genres contains Opera and cost < 11",
            {1, 2, 3, 4, 5, 6, 7, 8, 10},
        ),  # an empty list is null, as in comparisons
        ("not studio contains éclair or is_null(genres)", {9}),
        ("studio contains écl and cost < 6", {1, 2, 3, 5}),
        ("(studio contains x or cost < 6) and not studio == 'x'", {1, 2, 3, 5}),
    ],
)
def test_raw_values_are_compared(where: str, wanted: set[int], recommender: Recommender) -> None:
    (answer,) = recommender.recommend([Query(user=1, where=where, k=100, exclude_seen=False)])
    assert {one.item.id for one in answer.items} == wanted


def test_items_show_raw_numbers(recommender: Recommender) -> None:
    (answer,) = recommender.recommend([Query(user=1, where="cost >= 4 and cost <= 5", exclude_seen=False)])
    four, five = sorted((one.item for one in answer.items), key=lambda item: item.id)
    assert {name: four.features[name] for name in ("cost", "double", "price_raw", "genres", "studio")} == {
        "cost": ("4",), "double": ("8",), "price_raw": ("4",), "genres": ("Drama",), "studio": (),
    }  # fmt: skip
    assert five.features["price_raw"] == ()
    assert (five.features["price"], four.features["price"]) == ((), ("4",))
    assert (four.features["isbn"], four.features["exact"]) == (("9780306406004",), ("4.99",))
    assert "mass" not in five.features


def test_a_bundle_keeps_raw_values_and_works_without_them(recommender: Recommender, tmp_path: Path) -> None:
    from recsys_cli.serving.bundle import load_bundle
    from recsys_cli.serving.bundle_writer import write_bundle

    exact = Query(user=1, where="isbn == 9780306406004", exclude_seen=False, explain=True)
    source = {"run": {"name": "r", "key": "k"}, "data": "d"}
    for name, served in (("new", recommender.served), ("earlier", replace(recommender.served, item_values=None))):
        (tmp_path / name).mkdir()
        write_bundle(served, tmp_path / name, key="k", source=source)
    assert load_bundle(tmp_path / "new").recommend([exact]) == recommender.recommend([exact])
    earlier = load_bundle(tmp_path / "earlier")
    assert earlier.recommend([Query(user=1, where="cost < 3", exclude_seen=False)])[0].items
    with pytest.raises(ConfigError, match="LogOp change its values"):
        earlier.recommend([Query(user=1, where="price < 3")])


def test_the_card_of_a_closed_form_model_has_weights_and_chosen_values(
    recommender: Recommender, tmp_path: Path
) -> None:
    from recsys_cli.serving.bundle_writer import write_bundle

    source = {"run": {"name": "r", "key": "k"}, "data": "d", "chosen": {"regularization": 12.5}}
    bundle = write_bundle(recommender.served, tmp_path, key="k", source=source)
    card, weights = bundle.card.read_text(), 40 * 39
    assert bundle.manifest["num_parameters"] == weights
    assert f"40 items of train; {weights:,} non-zero weights.\n" in card
    assert "| regularization | 12.5 (chosen on train) |" in card
