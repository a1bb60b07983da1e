"""Ranking models on data with strong tastes: they beat any sum of user and item effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.data import planted as generator
from recsys_cli.data.planted import PlantedWorld, Ratings, Size
from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.metrics.labels import AUC
from recsys_cli.models import build, require_gradient_trained
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.step import Step

USERS, ITEMS, GENRES, ROWS = 120, 400, 6, 22_000
STARS = 7
"""Threshold of a like, in half stars."""


def categorical(name: str, role: Role, size: int, *, ragged: bool = False) -> Column:
    return Column(
        name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size + FIRST, vocabulary=name, ragged=ragged
    )  # fmt: skip


SCHEMA = Schema(
    columns=(
        categorical("user", Role.USER, USERS),
        categorical("item", Role.ITEM, ITEMS),
        categorical("genres", Role.FEATURE, GENRES, ragged=True),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
    )
)


class Planted:
    """Synthetic ratings, a fifth held out, and the best possible AUC on those."""

    def __init__(self) -> None:
        size = Size(users=USERS, items=ITEMS, rows=ROWS, seed=0, dim=2, genres=GENRES, years=5, activity=0.5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generator, "TASTE", 1.0)  # of more weight than in the presets, so that few rows show it
            self.world = PlantedWorld(size)
        self.ratings: Ratings = next(self.world.ratings())
        order = np.random.default_rng(0).permutation(ROWS)
        self.train, self.held_out = order[ROWS // 5 :], order[: ROWS // 5]

    def batch(self, rows: np.ndarray) -> Batch:
        user, item = self.ratings.user[rows], self.ratings.item[rows]
        has = self.world.has_genre[item]
        offsets = torch.from_numpy(np.concatenate([[0], has.sum(1).cumsum()]))
        genres = Ragged(torch.from_numpy(np.nonzero(has)[1] + FIRST), offsets)
        liked = torch.from_numpy((self.ratings.half_stars[rows] >= STARS).astype(np.float32))
        ids = {"user": torch.from_numpy(user + FIRST), "item": torch.from_numpy(item + FIRST)}
        return Batch({**ids, "genres": genres}, {"label": liked})

    def auc(self, scores: np.ndarray) -> float:
        return AUC.of_rows(self.ratings.half_stars[self.held_out] >= STARS, scores)

    @property
    def best(self) -> float:
        """AUC of the noise-free score."""
        return self.auc(self.ratings.score[self.held_out])

    @property
    def best_by_sums(self) -> float:
        """AUC of the best sum of a user effect and an item effect, by backfitting."""
        user, item, score = self.ratings.user, self.ratings.item, self.ratings.score
        of_user, of_item = np.zeros(USERS), np.zeros(ITEMS)
        for _ in range(30):
            of_user = np.bincount(user, score - of_item[item], USERS) / np.bincount(user, minlength=USERS)
            of_item = np.bincount(item, score - of_user[user], ITEMS) / np.bincount(item, minlength=ITEMS).clip(1)
        return self.auc((of_user[user] + of_item[item])[self.held_out])


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


def reached(name: str, planted: Planted, **options: Any) -> float:
    """Train a model for a few hundred steps and return its AUC on held-out rows."""
    config = TrainConfig(
        epochs=5, batch_size=256, learning_rate=0.005, sparse_embeddings=True, precision="fp32", device="cpu"
    )
    torch.manual_seed(0)
    model = require_gradient_trained(build(name, options, SCHEMA, sparse=True))
    step, per_epoch = Step(model, config, Ranks()), len(planted.train) // config.batch_size
    draw = np.random.default_rng(1)
    for epoch in range(config.epochs):
        model.train()
        for number, rows in enumerate(np.array_split(draw.permutation(planted.train), per_epoch)):
            step(planted.batch(rows), TrainingPosition(epoch * per_epoch + number, per_epoch, config.epochs, []))
    with torch.no_grad():
        return planted.auc(model.eval().score(planted.batch(planted.held_out)).numpy())


def test_the_planted_data_have_tastes_beyond_sums(planted: Planted) -> None:
    assert planted.best > planted.best_by_sums + 0.05


@pytest.mark.parametrize("name", ["fm", "neumf", "dlrm", "dcn-v2"])
def test_interaction_models_learn_tastes(planted: Planted, name: str) -> None:
    """The AUC gains a third of the gap between the best additive model and the noise-free score."""
    towers = {} if name == "fm" else {"dropout": 0.0, "embedding_dropout": 0.0}
    found = reached(name, planted, regularization=0.01, **towers)
    assert 1 / 3 < (found - planted.best_by_sums) / (planted.best - planted.best_by_sums) < 1


def test_logistic_learns_no_tastes(planted: Planted) -> None:
    """How near it comes to the best sum is in the contract suite."""
    assert reached("logistic", planted) < planted.best_by_sums
