"""The baselines on an example made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.baselines import POINTWISE, fit_baseline, log_odds, ranking_baselines
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.configs.matrix import WORK
from recsys_cli.models.model import TrainingContext

TRAIN = Interactions(
    np.array([3, 4, 5, 6, 3], np.int32), np.array([3, 3, 3, 4, 5], np.int32), np.array([1, 1, 0, 0, 1], np.float32)
)


def _probabilities(name: str, *items: int) -> list[float]:
    rows = Interactions(np.full(len(items), 3, np.int32), np.array(items, np.int32), np.zeros(len(items), np.float32))
    return POINTWISE[name].fit(TRAIN, num_items=8).numbers(rows).tolist()


def test_constant_predicts_the_train_mean() -> None:
    assert _probabilities("constant", 3, 7, 2) == pytest.approx([0.6, 0.6, 0.6])


def test_item_mean_is_smoothed_by_five_rows_of_the_overall_mean() -> None:
    assert _probabilities("item mean", 3, 4, 5) == pytest.approx([(2 + 3) / 8, 3 / 6, (1 + 3) / 6])


def test_item_mean_of_an_unknown_item_is_the_overall_mean() -> None:
    assert _probabilities("item mean", 2, 7) == pytest.approx([0.6, 0.6])


def _schema(*, users: int, items: int) -> Schema:
    def ids(name: str, role: Role, size: int) -> Column:
        return Column(name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=size, vocabulary=name)

    return Schema(columns=(ids("user", Role.USER, users), ids("item", Role.ITEM, items)))


def _known(rows: Interactions) -> TrainingContext:
    return TrainingContext(lambda: rows, dict)


def test_popularity_counts_train_rows_whatever_their_label() -> None:
    schema = _schema(users=10, items=8)

    model = fit_baseline("popularity", {}, schema, _known(TRAIN), _known(TRAIN), device="cpu")

    assert model.scores(torch.tensor([3, 9]), torch.tensor([5, 3, 4, 7])).tolist() == [[1, 3, 1, 0], [1, 3, 1, 0]]


@pytest.mark.parametrize("label", ["popularity", "popularity, own items first", "ease"])
def test_ranking_baseline_is_the_model_of_that_name_with_the_longer_history(label: str) -> None:
    schema = _schema(users=10, items=8)
    later = Interactions(np.array([6], np.int32), np.array([3], np.int32), np.ones(1, np.float32))
    everybody, everything = torch.arange(10), torch.arange(8)

    name, options = ranking_baselines(schema, EvaluateConfig(repeats=True), 10)[label]
    fitted = fit_baseline(name, options, schema, _known(TRAIN), _known(TRAIN + later), device="cpu")
    found = fitted.scores(everybody, everything)

    model = build(name, {"own_first": True} if "own" in label else {}, schema)
    model.fit(_known(TRAIN))
    model.set_context(_known(TRAIN + later))
    assert torch.equal(found, model.scores(everybody, everything))
    model.set_context(_known(TRAIN))
    assert torch.equal(found, model.scores(everybody, everything)) == (label == "popularity")


@pytest.mark.parametrize(
    ("users", "items", "rows", "options"),
    [
        (610, 9_700, 100_000, {}),  # few users
        (16_000, 7_000, 100_000, {}),
        (19_412, 11_924, 128_773, {"memory_mib": 512}),
        (150_000, 100_000, 2_500_000, {"max_items": 6_299}),
        (30_000, 60_000, 280_000, {"memory_mib": 512, "max_items": 24_763}),
        (162_541, 60_000, 25_000_000, {"max_items": 1_753}),  # long histories
        (10**9, 60_000, 10**11, {"max_items": 22}),
    ],
)
def test_ease_stays_within_its_limits_as_a_baseline(users: int, items: int, rows: int, options: dict[str, int]) -> None:
    found = ranking_baselines(_schema(users=users + 3, items=items + 3), EvaluateConfig(), rows)
    assert found == {"popularity": ("popularity", {}), "ease": ("ease", options)}
    if "memory_mib" not in options:
        assert min(users, options.get("max_items", items)) ** 2 * options.get("max_items", items) <= WORK


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_baseline_is_finite_without_any_train_row(name: str) -> None:
    nothing = Interactions(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))

    assert np.isfinite(log_odds(POINTWISE[name].fit(nothing, num_items=8).numbers(TRAIN))).all()
