"""Rankers with a history: the same scores by evaluation, by a run, and by a moved bundle; exports without histories are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.ranking.history import UserHistories
from recsys_cli.serving.item_upserts import ItemUpserts, ItemValues
from recsys_cli.serving.query import Query, RecentInteraction
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run
from recsys_cli.stages.score import score
from recsys_cli.workspace import Bundle
from tests.served_runs import config_of, ratings


@pytest.fixture(scope="module", params=["din", "fm"])
def run(request: pytest.FixtureRequest, served_workspace: recsys.Workspace) -> recsys.TrainedRun:
    values = config_of(request.param, served_workspace).model_dump()
    values["model"]["history"] = {"max_seq_len": 8}
    values["split"] = {"method": "random", "valid": 0.1, "test": 0.2, "seed": 1}
    config = recsys.load_config(values)
    recsys.etl(config, served_workspace, progress=False)
    return recsys.train(config, served_workspace, progress=False)


@pytest.fixture
def test_rows(run: recsys.TrainedRun, served_workspace: recsys.Workspace) -> pl.DataFrame:
    """The raw rows of test in file order, with the logits of the evaluation."""
    recsys.evaluate(run, progress=False)
    rankings = Rankings.read(run.rankings)
    data = served_workspace.data_of(run)
    parts = [pl.read_parquet(path) for path in data.shards("test")]
    known = pl.concat(parts).with_columns(logit=rankings.logits)
    raw = ratings().with_row_index("number").with_columns(pl.col("number").cast(pl.Int64))
    number = next(name for name in known.columns if name.endswith("number"))
    known = known.select(pl.col(number).cast(pl.Int64).alias("number"), "logit")
    return known.join(raw, on="number", how="left", maintain_order="left")


def test_scores_of_the_evaluation_come_from_a_bundle_too(
    run: recsys.TrainedRun, test_rows: pl.DataFrame, tmp_path: Path
) -> None:
    bundle = recsys.load_bundle(recsys.export(run, tmp_path / "bundle", progress=False))
    rows = test_rows.select("userId", "movieId", "timestamp").to_dict(as_series=False)
    expected = test_rows["logit"].to_numpy()
    np.testing.assert_allclose(bundle.score(rows), expected, atol=1e-5)
    without_times = bundle.score({name: rows[name] for name in ("userId", "movieId")})
    assert np.abs(without_times - expected).max() > 1e-4
    now = bundle.score({**rows, "timestamp": [None] * len(test_rows)})
    np.testing.assert_allclose(now, without_times, atol=1e-6)


def test_files_of_rows_score_with_their_times(
    run: recsys.TrainedRun, test_rows: pl.DataFrame, served_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    rows, expected = test_rows.select("userId", "movieId", "timestamp"), test_rows["logit"].to_numpy()
    np.testing.assert_allclose(run.score(rows), expected, atol=1e-5)
    rows.write_parquet(tmp_path / "rows.parquet")
    bundle = Bundle(recsys.export(run, tmp_path / "bundle", progress=False))
    score(bundle, tmp_path / "rows.parquet", tmp_path / "scores.parquet", served_workspace)
    found = pl.read_parquet(tmp_path / "scores.parquet")["score"].to_numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_recommendations_see_the_whole_history(run: recsys.TrainedRun, served_workspace: recsys.Workspace) -> None:
    recommender = Recommender(served_run(run, served_workspace))
    assert recommender.scorer.why_not is None
    assert recommender.rows.optional_inputs == ("timestamp",)


def test_histories_of_requests_are_scored(run: recsys.TrainedRun, served_workspace: recsys.Workspace) -> None:
    """As if the context had them, for known and for anonymous users."""
    recommender = Recommender(served_run(run, served_workspace))
    served, everything = recommender.served, {"k": 100, "exclude_seen": False}

    def scores(**query: object) -> dict[object, float]:
        (answer,) = recommender.recommend([Query(**query, **everything)])
        assert answer.source == ("fold-in" if query.get("history") or query.get("recent") else "model")
        return {one.item.id: one.score for one in answer.items}

    recent = [RecentInteraction(7), RecentInteraction(8, label=0.0)]
    found = {"recent": scores(user=5, recent=recent), "history": scores(user=5, history=[3, 9, 11, 404])}
    stored, user = scores(user=5), int(served.users.encode([5])[0])
    assert scores(user=5, history=[]) == stored

    def expected(items: list[int], labels: list[float], *, keep: bool) -> dict[object, float]:
        encoded = served.items.encode(items)
        rows = served.interactions()
        kept = rows.chosen((rows.user_idx != user) | (keep & ~np.isin(rows.item_idx, encoded)))
        new = Interactions(
            np.full(len(items), user, np.int32), encoded.astype(np.int32), np.array(labels, np.float32),
            times=np.arange(len(items)) + 10**12,
        )  # fmt: skip
        served.model.set_context(TrainingContext(lambda: kept + new, served.tables.join))
        values = recommender.scorer.trained(np.array([user]))[0].tolist()
        return {recommender.catalog.item(place).id: value for place, value in enumerate(values)}

    for name, twin in (
        ("recent", expected([7, 8], [1.0, 0.0], keep=True)),
        ("history", expected([3, 9, 11], [1.0] * 3, keep=False)),
    ):
        assert found[name] == pytest.approx(twin, abs=1e-5)
        assert found[name] != pytest.approx(stored, abs=1e-5)
    one, other = (scores(history=items) for items in ([1, 3, 5], [2, 4, 6]))
    assert one != pytest.approx(other, abs=1e-4)
    (answer,) = recommender.recommend([Query(history=[404])])
    assert answer.source == "popularity"


def test_upserts_sort_no_histories(
    run: recsys.TrainedRun, served_workspace: recsys.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    recommender = Recommender(served_run(run, served_workspace))
    upserts = ItemUpserts(recommender)
    assert upserts.why_not is None
    (before,) = recommender.recommend([Query(user=5, k=100)])
    monkeypatch.setattr(UserHistories, "of", lambda *_, **__: pytest.fail("the histories are sorted again"))
    values = {"100": ItemValues(100, {"genres": ["War"], "year": 1984}, at=1)}
    (after,) = upserts.recommender(values).recommend([Query(user=5, k=100)])
    scores = {one.item.id: one.score for one in after.items}
    assert scores.pop(100) is not None
    assert scores == pytest.approx({one.item.id: one.score for one in before.items}, abs=1e-6)


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_exports_without_histories_are_refused(run: recsys.TrainedRun, kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads the histories of users"):
        recsys.export(run, tmp_path / "export", format=kind, progress=False)


def test_a_bundle_without_histories_is_refused(run: recsys.TrainedRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads the user histories for its scores"):
        recsys.export(run, tmp_path / "bundle", histories=False, progress=False)
