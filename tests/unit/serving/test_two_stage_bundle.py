"""A two-stage run from the config to the bundle: trained parts, figures of the stages, one ranking everywhere."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import recsys_cli as recsys
from recsys_cli.cli.evaluate import draw, result
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Evaluation
from recsys_cli.events import Event, Message, Progress
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run
from recsys_cli.stages.recommend import recommend_users
from tests.served_runs import COLUMNS, config_of, ratings

SEEN_LAST = "seen items are no candidates of two-stage: they rank behind all candidates"
TRAIN = {"epochs": 2, "batch_size": 64}
OPTIONS: dict[str, dict[str, Any]] = {
    "folds in": {
        "candidates": [
            {"name": "sasrec", "k": 10, "embedding_dim": 8, "train": TRAIN},
            {"name": "popularity", "k": 10, "half_life": 100},
        ],
        "ranker": {"name": "lightgbm", "num_trees": 10},
        "holdout": {"rounds": 2},
        "rerank": [{"name": "mmr", "by": "sasrec"}, {"name": "at-most", "feature": "genres", "number": 2}],
    },
    "by user vectors": {
        "candidates": [{"name": "mf", "k": 10, "embedding_dim": 8, "train": TRAIN}, {"name": "ease", "k": 10}],
        "ranker": {"name": "dcn-v2", "embedding_dim": 4, "hidden_dims": [8], "train": TRAIN},
        "negatives": 10,
    },
    "by histories": {
        "candidates": [{"name": "ease", "k": 10}, {"name": "popularity", "k": 10}],
        "ranker": {"name": "din", "embedding_dim": 4, "hidden_dims": [8], "train": TRAIN},
    },
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_run_evaluation_and_bundle_have_one_ranking(
    kind: str, served_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    values = config_of("two-stage", served_workspace).model_dump()
    values["model"] = {"name": "two-stage", **OPTIONS[kind]}
    config = recsys.load_config(values)
    recsys.etl(config, served_workspace, progress=False)
    run = recsys.train(config, served_workspace, progress=False)
    recsys.evaluate(run, progress=False)
    evaluation = Evaluation.read(run.evaluation)
    check_stages(evaluation, [part["name"] for part in OPTIONS[kind]["candidates"]])
    check_pages(evaluation, run.report.read_text(encoding="utf-8"), result(run, up_to_date=False))

    bundle = load_bundle(recsys.export(run, tmp_path / "bundle", progress=False))
    loaded = Recommender(served_run(run, served_workspace))
    rankings, names = Rankings.read(run.rankings), IdNames(served_workspace.data_of(run))
    known = np.flatnonzero(rankings.users >= FIRST)
    queries = [Query(user=int(names.user(int(rankings.users[row]))), k=5) for row in known]
    assert len(queries) > 10
    for row, by_bundle, by_run in zip(known, bundle.recommend(queries), loaded.recommend(queries), strict=True):
        top = rankings.items[MODEL][row, :5]
        expected = names.decode(Role.ITEM, top[top >= FIRST].astype(np.int64)).to_pylist()
        assert [one.item.id for one in by_bundle.items] == expected
        assert [(one.item.id, one.score) for one in by_run.items] == [
            (one.item.id, one.score) for one in by_bundle.items
        ]
    for recommender in (bundle, loaded):
        check_seen_items(recommender, queries[0])
    events: list[Event] = []
    recommend_users(loaded, Query(k=5, exclude_seen=False), tmp_path / "all.csv", emit=events.append)
    assert Message(SEEN_LAST) in events
    assert (
        next(one.done for one in events if isinstance(one, Progress)) == 0
    )  # a log has a line before the first block ends


def check_seen_items(recommender: Recommender | recsys.LoadedBundle, query: Query) -> None:
    """Seen items that are not left out are behind the candidates, and the answer says so."""
    answer = recommender.answer if isinstance(recommender, recsys.LoadedBundle) else recommender.recommend
    unseen, every = answer([query, replace(query, exclude_seen=False)])
    assert [one.item.id for one in every.items] == [one.item.id for one in unseen.items]
    assert SEEN_LAST in str(every.note)
    assert SEEN_LAST not in str(unseen.note)


def check_stages(evaluation: Evaluation, generators: list[str]) -> None:
    stages = {stage.name: stage for stage in evaluation.stages}
    assert list(stages)[: len(generators) + 1] == [*generators, "all candidates"]
    union, whole = stages["all candidates"].recall, evaluation.stages[-1]
    assert union is not None
    assert whole.ndcg.value == pytest.approx(evaluation.ranking[MODEL]["ndcg@10"].value)
    for name in generators:
        one = stages[name]
        assert one.recall is not None
        assert one.ndcg is not None
        assert one.recall.value <= union.value
        assert one.gain == pytest.approx(whole.ndcg.value - one.ndcg.value)
        assert one.gain_low <= one.gain <= one.gain_high


def check_pages(evaluation: Evaluation, report: str, shown: dict[str, Any]) -> None:
    """The report and the terminal show recall, gain, interval and verdict of each stage."""
    drawn = StringIO()
    draw(Console(file=drawn, width=200), shown)
    corrected = f"corrected for {sum(stage.verdict is not None for stage in evaluation.stages)} comparisons"
    assert corrected in drawn.getvalue()
    section = report.partition("<h2>Stages")[2].partition("</section>")[0]
    assert corrected in section
    for stage in evaluation.stages[:-1]:
        cells = [] if stage.recall is None else [f"{stage.recall.value:.4f}"]
        if stage.gain is not None:
            cells += [f"{stage.gain:+.4f}", f"{stage.gain_low:+.4f}", f"{stage.gain_high:+.4f}", stage.significance]
        (row,) = re.findall(f">{stage.name}</th>(.*?)</tr>", section, re.DOTALL)
        lines = [line for line in drawn.getvalue().splitlines() if line.startswith(f"{stage.name} ")]
        for cell in cells:
            assert cell in row
            assert any(cell in line for line in lines)


def newcomers() -> pl.DataFrame:
    """The ratings, with those of users above 50 after all others, user by user."""
    late = pl.col("userId") > 50
    return ratings().with_columns(
        timestamp=pl.col("timestamp") + pl.when(late).then(pl.col("userId") * 10_000).otherwise(0)
    )


def test_users_without_a_history_have_one_list_in_evaluation_and_service(
    served_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    frame = newcomers()
    values = recsys.config_from_frame(frame, served_workspace, **COLUMNS, model="two-stage").model_dump()
    values["split"] = {"method": "temporal", "valid": 0.1, "test": 0.1}
    values["model"] = {
        "name": "two-stage", "holdout": {"method": "latest", "rounds": 3},
        "candidates": [{"name": "ease", "k": 10}, {"name": "popularity", "k": 10, "half_life": 30}],
        "ranker": {"name": "lightgbm", "num_trees": 30, "min_data_in_leaf": 5},
    }  # fmt: skip
    config = recsys.load_config(values)
    recsys.etl(config, served_workspace, progress=False)
    run = recsys.train(config, served_workspace, progress=False)
    recsys.evaluate(run, progress=False)
    bundle = load_bundle(recsys.export(run, tmp_path / "bundle", progress=False))
    loaded = Recommender(served_run(run, served_workspace))
    rankings, names = Rankings.read(run.rankings), IdNames(served_workspace.data_of(run))
    lists = [
        names.decode(Role.ITEM, row[row >= FIRST].astype(np.int64)).to_pylist()
        for row in rankings.items[MODEL][rankings.users < FIRST, :5]
    ]
    (by_bundle,), (by_run,) = (one.recommend([Query(user="nobody", k=5)]) for one in (bundle, loaded))
    expected = [one.item.id for one in by_bundle.items]
    assert lists.count(expected) >= 4  # users 57 to 60 have rows in test alone
    assert [one.item.id for one in by_run.items] == expected
    assert by_bundle.source == "model"
    assert "no history" in str(by_bundle.note)
    assert expected != [loaded.catalog.item(place).id for place in range(5)]  # the catalog is in order of popularity
