"""Metrics per impression, against the definitions of MIND written out, and through the whole pipeline."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from recsys_cli.config import RunConfig
from recsys_cli.evaluation import Evaluation
from recsys_cli.evaluation.intervals import Impressions
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.features.columns import IMPRESSION_HASH, ROW_NUMBER
from recsys_cli.features.split import UserSplit
from recsys_cli.stages.compare import compare
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train
from recsys_cli.workspace import TrainedRun, Workspace

NAMES = ("impression_auc", "impression_mrr", "impression_ndcg@5", "impression_ndcg@10")


def _slow(labels: list[int], scores: list[float]) -> list[float]:
    """AUC, MRR, NDCG@5 and NDCG@10 of one impression, by loops over its candidates in order of distinct scores."""
    ranked = [label for _, label in sorted(zip(scores, labels, strict=True), reverse=True)]
    pairs = [(i, j) for i, one in enumerate(ranked) if one for j, other in enumerate(ranked) if not other]

    def dcg(order: list[int], k: int) -> float:
        return sum(label / np.log2(place + 2) for place, label in enumerate(order[:k]))

    reciprocal = sum(label / (place + 1) for place, label in enumerate(ranked)) / sum(ranked)
    best = sorted(ranked, reverse=True)
    ndcg = [dcg(ranked, k) / dcg(best, k) for k in (5, 10)]
    return [sum(i < j for i, j in pairs) / len(pairs), reciprocal, *ndcg]


def _values(labels: list[int], scores: list[float]) -> list[float]:
    one = Impressions.of(np.zeros(len(labels), np.int64), np.array(labels), np.zeros(len(labels), np.int64))
    return [float(value[0]) for value in one.values(np.array(labels), np.array(scores)).values()]


def test_metrics_are_those_of_mind() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(-1, 60, 1_200)
    labels = (rng.random(1_200) < 0.2).astype(np.float32)
    scores = rng.permutation(1_200).astype(np.float32)
    labels[numbers == 7], labels[numbers == 9] = 1, 0

    impressions = Impressions.of(numbers, labels, numbers)
    found = impressions.estimates(labels, scores)

    groups = [numbers == number for number in range(60)]
    both = [group for group in groups if 0 < labels[group].sum() < group.sum()]
    expected = np.mean([_slow(labels[group].astype(int).tolist(), scores[group].tolist()) for group in both], axis=0)
    assert list(found) == list(NAMES)
    assert [one.value for one in found.values()] == pytest.approx(expected.tolist())
    assert impressions.left_out == 60 - len(both) >= 2


def test_known_impression() -> None:
    found = _values([0, 1, 0, 1], [4.0, 3.0, 2.0, 1.0])

    ndcg = (1 / np.log2(3) + 1 / np.log2(5)) / (1 + 1 / np.log2(3))
    assert found == pytest.approx([0.25, (1 / 2 + 1 / 4) / 2, ndcg, ndcg])  # both clicks count in the MRR


def test_ties_count_as_the_average_of_their_orders() -> None:
    labels, scores = [1, 0, 0, 1, 0, 1], [2.0, 2.0, 2.0, 1.0, 1.0, 3.0]

    orders = [_slow(labels, [score + 0.01 * noise for score, noise in zip(scores, order, strict=True)])
              for order in itertools.permutations(range(6))]  # fmt: skip
    assert _values(labels, scores) == pytest.approx(np.mean(orders, axis=0).tolist())
    assert _values([1, 0, 0], [5.0, 5.0, 5.0])[0] == 0.5


def test_intervals_are_over_users() -> None:
    rng = np.random.default_rng(1)
    labels = np.tile([1.0, 0.0, 0.0], 40)
    scores = rng.permutation(120).astype(np.float64)
    numbers = np.repeat(np.arange(40), 3)

    def interval(copies: int) -> tuple[float, float] | None:
        many = np.concatenate([numbers + 40 * copy for copy in range(copies)])
        of = Impressions.of(many, np.tile(labels, copies), np.tile(numbers, copies))  # more impressions, the same users
        return of.estimates(np.tile(labels, copies), np.tile(scores, copies))["impression_mrr"].interval

    assert interval(5) == pytest.approx(interval(1))


CONFIG: dict[str, Any] = {
    "dataset": {"name": "files", "interactions": "train.csv"},
    "split": {"method": "files", "train": "train.csv", "test": "test.csv"},
    "features": {
        "user": "user", "item": "item", "label": "clicked", "impression": "impression",
        "ops": [{"op": "Categorify", "columns": ["user", "item"]}],
    },
    "train": {"epochs": 1, "device": "cpu"},
    "evaluate": {"bootstrap": 50},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of ten items the even ones are clicked more in train; each test impression has one of them, clicked, and two others."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    train_rows, test_rows = [], []
    for shown in range(200):
        item = int(rng.integers(10))
        train_rows.append((shown % 20, item, int(rng.random() < (0.9 if item % 2 == 0 else 0.1)), f"t{shown // 5}"))
        even, *odd = int(rng.choice([0, 2, 4, 6, 8])), *rng.choice([1, 3, 5, 7, 9], 2, replace=False)
        rows = [(shown % 20, item, int(item == even), f"imp{shown}") for item in rng.permutation([even, *odd])]
        test_rows += rows if shown else [(*rows[0][:2], 0, "imp0")]
    test_rows.append((3, 1, 1, ""))  # without an impression
    test_rows += [(19, 2, 1, "imp1"), (19, 3, 0, "imp1")]  # another user's impression with an id of before
    for name, rows in (("train", train_rows), ("test", [test_rows[i] for i in rng.permutation(len(test_rows))])):
        lines = ["user,item,clicked,impression", *(",".join(map(str, row)) for row in rows)]
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def _run(workspace: Workspace, model: str) -> TrainedRun:
    return train(RunConfig.model_validate({**CONFIG, "model": {"name": model}}), workspace).artifact


def test_impressions_of_files_are_measured_and_compared(folder: Path, workspace: Workspace) -> None:
    data = etl(RunConfig.model_validate(CONFIG), workspace).artifact
    assert "impression" not in data.schema.names
    assert IMPRESSION_HASH not in data.schema.names
    runs = [_run(workspace, "popularity"), _run(workspace, "logistic")]
    for run in runs:
        evaluate(run, workspace)

    evaluation = Evaluation.read(runs[1].evaluation)
    assert [evaluation.pointwise["item mean"][name].value for name in NAMES] == [1, 1, 1, 1]
    constant = evaluation.pointwise["constant"]
    assert constant["impression_auc"].value == 0.5
    assert constant["impression_mrr"].value == pytest.approx((199 * (1 + 1 / 2 + 1 / 3) / 3 + (1 + 1 / 2) / 2) / 200)
    assert any("200 impressions" in note and "1 of one class" in note for note in evaluation.notes)
    assert "impression NDCG@5" in runs[1].report.read_text()
    assert Rankings.read(runs[1].rankings).row_impressions is not None

    comparison = compare([run.folder.name for run in runs], workspace)
    figures = {figure.metric: figure for figure in comparison.figures}
    for name in NAMES:
        values = [Evaluation.read(run.evaluation).metrics[name].value for run in runs]
        assert list(figures[name].values.values()) == pytest.approx(values)
        assert figures[name].unit == "impressions"


def test_temporal_split_divides_no_impression_of_one_time(folder: Path, workspace: Workspace) -> None:
    shown = [f"i{number % 3}" if number % 10 else "" for number in range(30)]
    rows = [f"{number % 4},{number % 7},{number % 2},{one},1" for number, one in enumerate(shown)]
    Path("train.csv").write_text("\n".join(["user,item,clicked,impression,time", *rows]) + "\n")
    split, features = {"method": "temporal", "valid": 0, "test": 0.93}, {**CONFIG["features"], "timestamp": "time"}
    data = etl(RunConfig.model_validate({**CONFIG, "features": features, "split": split}), workspace).artifact
    kept = pa.concat_tables([pq.read_table(path) for path in data.shards("train")]).column(ROW_NUMBER).to_pylist()
    assert set(kept) == {0, *(row for row, one in enumerate(shown) if one == "i1")}  # of rows 0 and 1


@pytest.mark.parametrize("method", ["random", "leave-last-out", "user"])
def test_split_that_divides_impressions_is_an_error(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features = {**CONFIG["features"], "timestamp": "time"}
    monkeypatch.delattr(UserSplit, "keeps_impressions")  # as in a new split that says nothing of impressions
    with pytest.raises(ValidationError, match=r"divides the impressions.* choose one of temporal, session, files"):
        RunConfig.model_validate({**CONFIG, "features": features, "split": {"method": method}})
