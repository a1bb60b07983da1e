"""Sequence models with features of items and times, from the config to the bundle: one ranking everywhere, cold items too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import recsys_cli as recsys
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.item_upserts import ItemUpserts, ItemValues
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run
from tests.served_runs import config_of, movies, ratings

FEATURES = {"item_features": "all", "time_features": ["hour_of_day", "day_of_week"]}


def trained(name: str, workspace: recsys.Workspace, *, table: pl.DataFrame | None = None) -> recsys.TrainedRun:
    values = config_of("sasrec", workspace).model_dump()
    hours = ratings().with_columns(timestamp=1_500_000_000 + 3_600 * pl.col("timestamp"))
    values["dataset"] = recsys.dataset_from_frames(workspace, hours, movies=movies() if table is None else table)
    values["model"] = {"name": name, "embedding_dim": 8, **FEATURES}
    values["train"]["sparse_embeddings"] = True
    config = recsys.load_config(values)
    recsys.etl(config, workspace, progress=False)
    return recsys.train(config, workspace, progress=False)


@pytest.mark.parametrize("name", ["sasrec", "gru4rec", "hstu", "bert4rec"])
def test_run_evaluation_and_bundle_rank_alike(name: str, served_workspace: recsys.Workspace, tmp_path: Path) -> None:
    run = trained(name, served_workspace)
    recsys.evaluate(run, progress=False)
    bundle = load_bundle(recsys.export(run, tmp_path / "bundle", progress=False))
    loaded = Recommender(served_run(run, served_workspace))
    rankings, names = Rankings.read(run.rankings), IdNames(served_workspace.data_of(run))
    known = np.flatnonzero(rankings.users >= FIRST)
    queries = [Query(user=int(names.user(int(rankings.users[row]))), k=10) for row in known]
    assert len(queries) > 10
    ranked = set()
    for row, by_bundle, by_run in zip(known, bundle.recommend(queries), loaded.recommend(queries), strict=True):
        top = rankings.items[MODEL][row, :10]
        expected = names.decode(Role.ITEM, top[top >= FIRST].astype(np.int64)).to_pylist()
        assert [one.item.id for one in by_bundle.items] == expected
        assert [(one.item.id, one.score) for one in by_run.items] == [
            (one.item.id, one.score) for one in by_bundle.items
        ]
        ranked |= {one.item.id for one in by_bundle.items}
    assert ranked & set(range(41, 46))  # movies without a rating
    check_requests(bundle)


def check_requests(bundle: Recommender) -> None:
    """A history of the request is folded in; features of a user are not read."""
    (answer,) = bundle.recommend([Query(history=[1, 2, 3], k=5)])
    assert len(answer.items) == 5
    assert answer.source == "fold-in"
    (told,) = bundle.recommend([Query(history=[1, 2, 3], k=5, features={"age": 3})])
    assert [one.item.id for one in told.items] == [one.item.id for one in answer.items]
    assert "reads no features: age had no effect" in str(told.note)


def test_upserted_items_are_ranked_as_cold_items_of_etl(tmp_path: Path) -> None:
    bundles = []
    for name, table in (("whole", movies()), ("part", movies().filter(pl.col("movieId") <= 40))):
        workspace = recsys.Workspace(str(tmp_path / name))
        run = trained("sasrec", workspace, table=table)
        bundles.append(load_bundle(recsys.export(run, tmp_path / f"{name}-bundle", progress=False)))
    whole, part = bundles
    for key, weight in whole.served.model.state_dict().items():
        assert torch.equal(weight, part.served.model.state_dict()[key]), key
    rows = movies().filter(pl.col("movieId") > 40).to_dicts()
    values = {
        str(row["movieId"]): ItemValues(row["movieId"], {"genres": row["genres"], "year": row["year"]}, at=1)
        for row in rows
    }
    upserted = ItemUpserts(part).recommender(values)
    for user in (1, 2, 7):
        (found,), (expected,) = (one.recommend([Query(user=user, k=50)]) for one in (upserted, whole))
        assert [one.item.id for one in found.items] == [one.item.id for one in expected.items]
        assert {one.item.id for one in found.items} >= set(range(41, 46))
    assert [one.item.id for one in upserted.similar(43, 5).items] == [one.item.id for one in whole.similar(43, 5).items]
