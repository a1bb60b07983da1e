"""Upserted items score as the same items prepared by `etl`: as cold items, or as trained items with other features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import recsys_cli as recsys
from recsys_cli.batch import Batch
from recsys_cli.errors import DataError
from recsys_cli.features.schema import Role
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.encoder import TableEncoder
from recsys_cli.serving.item_upserts import ItemUpserts, ItemValues
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import index_of
from recsys_cli.stages.export import export, served_run
from recsys_cli.workspace import PreparedData
from tests.served_runs import config_of, movies, ratings

Recommenders = Callable[[str], Recommender]
USERS = list(range(1, 61))


def values(movie: int, *, item: object = None, at: int = 1, **changed: Any) -> ItemValues:
    """The values of a movie, for its own id or another one."""
    row = movies().row(by_predicate=pl.col("movieId") == movie, named=True)
    return ItemValues(item or movie, {"genres": row["genres"], "year": row["year"], **changed}, at=at)


def by_item(model: Recommender, user: int, **query: Any) -> dict[Any, float]:
    (answer,) = model.recommend([Query(user=user, k=100, exclude_seen=False, **query)])
    return {one.item.id: one.score for one in answer.items}


def trained_on(table: pl.DataFrame, model: str, folder: Path, *, layout: str, buckets: int) -> Recommender:
    """Train on all ratings, with a table of movies; the bundle, loaded."""
    workspace = recsys.Workspace(str(folder))
    written = config_of(model, workspace).model_dump() | {"etl": {"layout": layout}}
    written["features"]["ops"][1]["num_buckets"] = buckets
    written["dataset"] = recsys.dataset_from_frames(workspace, ratings(), movies=table)
    config = recsys.load_config(written)
    recsys.etl(config, workspace, progress=False)
    run = recsys.train(config, workspace, progress=False)
    export(run, workspace, out=folder / "bundle", verify=False)
    return load_bundle(folder / "bundle")


@pytest.mark.parametrize(("model", "layout", "buckets"), [("fm", "flat", 5), ("two-tower", "star", 0)])
def test_upserts_score_as_items_of_etl(tmp_path: Path, model: str, layout: str, buckets: int) -> None:
    whole = trained_on(movies(), model, tmp_path / "whole", layout=layout, buckets=buckets)
    known = movies().filter(pl.col("movieId") <= 40)
    part = trained_on(known, model, tmp_path / "part", layout=layout, buckets=buckets)
    for name, weight in whole.served.model.state_dict().items():
        assert torch.equal(weight, part.served.model.state_dict()[name]), name
    upserts = ItemUpserts(part)
    upserted = upserts.recommender({str(item): values(item) for item in (45, 43, 41, 42, 44)})
    columns = {"userId": USERS * 5, "movieId": np.repeat(range(41, 46), len(USERS))}
    assert upserted.score(columns) == pytest.approx(whole.score(columns), abs=1e-6)
    for user in (1, 2, 7):
        found, expected = by_item(upserted, user), by_item(whole, user)
        assert len(found) == 45
        assert found == pytest.approx(expected, abs=1e-6)
        where = {"where": "genres contains War and year > 1990"}
        assert list(by_item(upserted, user, **where)) == list(by_item(whole, user, **where))
    assert [one.item.id for one in upserted.similar(43, 5).items] == [one.item.id for one in whole.similar(43, 5).items]


OPS = [
    {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres", "year", "price", "studio", "made"]},
    {"op": "ListSlice", "columns": ["genres"], "start": 0, "end": 1},
    {"op": "FillMedian", "columns": ["price"], "add_binary_cols": True},
    {"op": "LogOp", "columns": ["price"]},
    {"op": "Normalize", "columns": ["price"]},
    {"op": "LambdaOp", "expression": "year - 1980", "output": "age", "dtype": "float32"},
    {"op": "NormalizeMinMax", "columns": ["age"]},
    {"op": "Bucketize", "columns": ["made"], "boundaries": [3, 7]},
    {"op": "HashBucket", "columns": ["studio"], "num_buckets": 7},
    {"op": "Categorify", "columns": ["userId", "movieId"], "freq_threshold": 30, "num_buckets": 4},
    {"op": "Categorify", "columns": ["genres", "year"]},
    {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
]  # fmt: skip


def test_rows_of_a_table_encode_as_in_etl(tmp_path: Path) -> None:
    workspace = recsys.Workspace(str(tmp_path))
    number = pl.col("movieId")
    table = movies().with_columns(
        genres=pl.Series([None if at % 9 == 0 else genres for at, genres in enumerate(movies()["genres"].to_list())]),
        year=pl.when(number == 44).then(2050).otherwise("year"),
        price=pl.when(number % 7 == 0).then(None).otherwise(number * 1.7 % 11),
        studio=pl.when(number % 5 == 0).then(None).otherwise(pl.lit("S") + (number % 6).cast(pl.String)),
        made=number % 10,
    )
    written = config_of("fm", workspace).model_dump()
    written["dataset"] = recsys.dataset_from_frames(workspace, ratings(), movies=table)
    written["features"] |= {"ops": OPS, "label": "label"}
    data = recsys.etl(recsys.load_config(written), workspace, progress=False)
    prepared, fitted = PreparedData(Path(data.folder)), FittedPlan.read(Path(data.folder))
    expected = pq.read_table(prepared.table("movieId"))
    served = index_of(prepared, Role.ITEM)
    ids = table["movieId"].to_list()
    assert 0 < served.num_train < len(ids)
    encoder = TableEncoder(fitted, "movieId", {})
    found = encoder.encode(table.to_dicts())
    rows = expected.take(pa.array(served.encode(ids)))
    assert found.num_columns == 7
    for name in found.column_names:
        mine, theirs = found[name].to_pylist(), rows[name].to_pylist()
        assert mine == (theirs if name == "genres" else pytest.approx(theirs, rel=1e-6)), name


@pytest.mark.parametrize("model", ["fm", "two-tower"])
def test_a_trained_item_keeps_its_id_and_gets_other_features(recommenders: Recommenders, model: str) -> None:
    base = recommenders(model)
    before, upserts = by_item(base, 5), ItemUpserts(base)
    assert by_item(upserts.recommender({"7": values(7)}), 5) == pytest.approx(before, abs=1e-6)
    changed = upserts.recommender({"7": values(12, at=2, item=7)})
    after = by_item(changed, 5)
    assert {item for item in after if after[item] != pytest.approx(before[item], abs=1e-6)} == {7}

    served = base.served
    own, other = (torch.from_numpy(served.items.encode([item]).astype(np.int32)) for item in (7, 12))
    user = torch.from_numpy(served.users.encode([5]).astype(np.int32))
    features = served.tables.join({"userId": user, "movieId": own}) | served.tables.features({"movieId": other})
    with torch.inference_mode():
        assert after[7] == pytest.approx(float(served.model.score(Batch(features, {}))), rel=1e-5)
    assert changed.catalog.item(int(changed.catalog.places_of([7])[0])).features["year"] == ("1992",)
    assert by_item(upserts.recommender({}), 5) == pytest.approx(before, abs=1e-6)


def test_values_that_do_not_fit_are_refused_alone(recommenders: Recommenders) -> None:
    upserts = ItemUpserts(recommenders("fm"))
    upserts.check([values(3, item=101), values(4, item=102)])
    for wrong, message in (
        (values(3, item=103, year="soon"), "item 103: column year: 'soon' is no int64"),
        (values(3, item=104, genres="War"), "item 104: column genres: 'War' is no"),
        (values(3, item="x"), "item x: ids are int64"),
    ):
        with pytest.raises(DataError, match=message):
            upserts.check([values(3, item=101), wrong])
        model = upserts.recommender({"101": values(3, item=101), str(wrong.item): wrong})
        assert (101 in by_item(model, 1), wrong.item in by_item(model, 1)) == (True, False)
        assert list(upserts.refused) == [str(wrong.item)]
    assert 101 not in by_item(upserts.recommender({}), 1)


def test_values_without_a_finite_score_are_refused(tmp_path: Path) -> None:
    workspace = recsys.Workspace(str(tmp_path))
    written = config_of("fm", workspace).model_dump()
    written["features"]["ops"][1]["columns"] = ["userId", "movieId", "genres"]
    written["features"]["ops"] = [*written["features"]["ops"], {"op": "LogOp", "columns": ["year"]}]
    config = recsys.load_config(written)
    recsys.etl(config, workspace, progress=False)
    upserts = ItemUpserts(Recommender(served_run(recsys.train(config, workspace, progress=False), workspace)))
    upserts.check([values(3, item=101, year=2_030), values(3, item=103, year=None)])
    with pytest.raises(DataError, match="item 102: the score of fm is not a finite number") as error:
        upserts.check([values(3, item=101), values(3, item=102, year=-1)])
    assert "usual numbers for year" in str(error.value.hint)
    model = upserts.recommender({"101": values(3, item=101), "102": values(3, item=102, year=-1)})
    assert (101 in by_item(model, 1), 102 in by_item(model, 1)) == (True, False)
    assert "not a finite number" in upserts.refused["102"]


def test_many_upserts_of_an_item_leave_no_rows_behind(recommenders: Recommenders) -> None:
    upserts = ItemUpserts(recommenders("two-tower"))
    for at in range(1, 1_200):
        upserts._remember({"7": values(7, at=at), "200": values(9, at=1, item=200)})
        upserts._chosen(["200", "7"])
    assert upserts._encoded.num_rows < 1_100
    model = upserts.recommender({"7": values(7, at=1_199), "200": values(9, at=1, item=200)})
    assert by_item(model, 5)[7] == pytest.approx(by_item(recommenders("two-tower"), 5)[7], abs=1e-6)


@pytest.mark.parametrize("model", ["mf", "ease", "sasrec"])
def test_models_of_ids_take_no_upserts(recommenders: Recommenders, model: str) -> None:
    assert ItemUpserts(recommenders(model)).why_not == f"{model} scores items by their ids, not by features"
