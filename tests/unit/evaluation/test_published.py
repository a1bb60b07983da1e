"""Baselines and metrics on MovieLens latest-small equal figures that were measured elsewhere, with another evaluator."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.baselines import POINTWISE as POINTWISE_BASELINES
from recsys_cli.evaluation.baselines import log_odds
from recsys_cli.evaluation.held_out import candidate_items, hold_out
from recsys_cli.evaluation.ranking import rank
from recsys_cli.features.schema import FIRST, UNSEEN, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import POINTWISE, RANKING
from recsys_cli.metrics.metric import ScoreCounts
from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext


@pytest.fixture
def ratings(shared_data: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(shared_data / "ml-latest-small.zip") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("ratings.csv")]
        table = pyarrow.csv.read_csv(archive.open(name))
    return {column: table[column].to_numpy() for column in table.column_names}


def _encode(ratings: dict[str, np.ndarray], train: np.ndarray, rows: np.ndarray) -> Interactions:
    """Encode rows by what train knows; ids ascend with the raw ids, so that ties are broken as in the published figures."""
    columns = []
    for name in ("userId", "movieId"):
        known = np.unique(ratings[name][train])
        values = ratings[name][rows]
        place = np.minimum(np.searchsorted(known, values), len(known) - 1)
        columns.append(np.where(known[place] == values, place + FIRST, UNSEEN).astype(np.int32))
    return Interactions(*columns, (ratings["rating"][rows] > 3).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [("popularity", {}, (0.0410, 0.0188, 0.0122)), ("ease", {"regularization": 50.0}, (0.0918, 0.0449, 0.0311))],
)
def test_models_on_the_last_of_each_user_equal_the_published_figures(ratings, name, options, expected) -> None:
    order = np.lexsort((ratings["movieId"], ratings["timestamp"], ratings["userId"]))
    last = np.flatnonzero(np.append(np.diff(ratings["userId"][order]) != 0, True))
    test, valid = order[last], order[last - 1]
    train = np.setdiff1d(order, np.concatenate([test, valid]))
    parts = [_encode(ratings, train, rows) for rows in (train, valid, test)]
    num_items = int(parts[0].item_idx.max()) + 1
    candidates = candidate_items(parts[0], num_items=num_items)
    held_out = hold_out(
        parts[2],
        parts[0] + parts[1],
        candidates=candidates,
        num_items=num_items,
        config=EvaluateConfig(relevance="all"),
    )
    train, history = (TrainingContext(lambda rows=rows: rows, dict) for rows in (parts[0], parts[0] + parts[1]))
    model = build(name, options, _schema(users=613, items=num_items))
    model.fit(train)
    model.set_context(history)

    def scores(users: np.ndarray) -> torch.Tensor:
        return model.scores(torch.from_numpy(users), torch.from_numpy(candidates))

    ranked, _ = rank(held_out, scores, cut_off=10)

    found = tuple(round(float(RANKING[metric].compute(ranked, 10).mean()), 4) for metric in ("hr", "ndcg", "mrr"))
    assert len(ranked.num_relevant) == 610
    assert found == expected


def _schema(*, users: int, items: int) -> Schema:
    sizes = {Role.USER: users, Role.ITEM: items}
    return Schema(columns=tuple(
        Column(name=role, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size, vocabulary=role)
        for role, size in sizes.items()
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"), [("item mean", (0.6996, 0.6063, 0.6745)), ("constant", (0.5, 0.6659, 0.6164))]
)
def test_pointwise_baselines_on_a_random_split_equal_the_published_figures(ratings, name, expected) -> None:
    num_rows = len(ratings["rating"])
    order = np.random.default_rng(42).permutation(num_rows)
    cut = num_rows - int(num_rows * 0.2)
    train, test = (_encode(ratings, order[:cut], rows) for rows in (order[:cut], order[cut:]))
    baseline = POINTWISE_BASELINES[name].fit(train, num_items=int(train.item_idx.max()) + 1)

    tally = ScoreCounts.of(test.labels, log_odds(baseline.numbers(test)))

    found = tuple(round(POINTWISE[metric].compute(tally), 4) for metric in ("auc", "log_loss", "accuracy"))
    assert found == expected
