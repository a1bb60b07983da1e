"""Figures of labels that are numbers: against scikit-learn, against a bootstrap of rows, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.baselines import BIAS_SMOOTHING
from recsys_cli.evaluation.baselines import OF_NUMBERS as BASELINES
from recsys_cli.evaluation.compare.outcomes import Outcomes, PairedTest
from recsys_cli.evaluation.held_out import is_relevant
from recsys_cli.evaluation.intervals import Clusters, ScoredRows, pointwise_estimates
from recsys_cli.evaluation.pointwise import LabeledRows, measure_rows
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import OF_NUMBERS, POINTWISE
from recsys_cli.metrics.metric import ScoreCounts


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 11, 5_000).astype(np.float32) / 2
    return labels, (labels * 0.5 + 2 + rng.normal(0, 0.8, 5_000)).astype(np.float32)


def interactions(*rows: tuple[int, int, float], mean: float | None = 3.0) -> Interactions:
    users, items, labels = zip(*rows, strict=True)
    return Interactions(np.array(users, np.int32), np.array(items, np.int32), np.array(labels, np.float32), mean=mean)


def test_errors_equal_scikit_learn_and_what_training_measures(rows) -> None:
    labels, predicted = rows
    tally = ScoreCounts.of_errors(labels, predicted)

    rmse, mae = (OF_NUMBERS[name].compute(tally) for name in ("rmse", "mae"))
    assert rmse == pytest.approx(mean_squared_error(labels, predicted.astype(np.float64)) ** 0.5, rel=1e-12)
    assert mae == pytest.approx(mean_absolute_error(labels, predicted.astype(np.float64)), rel=1e-12)
    assert OF_NUMBERS["rmse"].of_rows(labels, predicted) == pytest.approx(rmse, rel=1e-12)


def test_errors_of_no_rows_are_not_defined() -> None:
    nothing = ScoreCounts.of_errors(np.empty(0, np.float32), np.empty(0))
    assert all(np.isnan(metric.compute(nothing)) for metric in OF_NUMBERS.values())
    assert np.isnan(OF_NUMBERS["rmse"].of_rows([], []))


def test_they_are_called_and_read_as_those_of_probabilities() -> None:
    for name, metric in OF_NUMBERS.items():
        assert (metric.title, metric.better) == (POINTWISE[name].title, POINTWISE[name].better)


def alone(number: int) -> Clusters:
    return Clusters.of(np.arange(number))


def test_intervals_are_those_of_drawing_rows(rows) -> None:
    labels, predicted = rows
    asked = ScoredRows.of_errors(labels, predicted, alone(len(labels)))
    found = pointwise_estimates(asked, OF_NUMBERS, resamples=400, seed=0)

    rng, errors = np.random.default_rng(1), predicted.astype(np.float64) - labels
    drawn = errors[rng.integers(0, len(errors), (1_000, len(errors)))]
    for name, figures in (("rmse", np.sqrt((drawn**2).mean(axis=1))), ("mae", np.abs(drawn).mean(axis=1))):
        low, high = np.quantile(figures, [0.025, 0.975])
        assert found[name].low == pytest.approx(low, abs=0.15 * (high - low))
        assert found[name].high == pytest.approx(high, abs=0.15 * (high - low))


def by_roots(own: np.ndarray, other: np.ndarray) -> PairedTest:
    systems = [Outcomes({}, {"rmse": one}, np.ones(len(one), np.bool_), alone(len(one))) for one in (own, other)]
    return systems[0].minus(systems[1], ["rmse"], resamples=10, seed=0)["rmse"]


def test_two_rmse_are_tested_as_by_a_paired_bootstrap(rows) -> None:
    labels, predicted = rows
    other = predicted + np.random.default_rng(2).normal(0, 0.3, len(labels))
    squares = [(one.astype(np.float64) - labels) ** 2 for one in (predicted, other)]
    found = by_roots(*squares)

    draws = np.random.default_rng(3).integers(0, len(labels), (1_000, len(labels)))
    roots = [np.sqrt(one[draws].mean(axis=1)) for one in squares]
    low, high = np.quantile(roots[0] - roots[1], [0.025, 0.975])
    assert found.value == pytest.approx(np.sqrt(squares[0].mean()) - np.sqrt(squares[1].mean()), rel=1e-12)
    assert (found.low, found.high) == (
        pytest.approx(low, abs=0.15 * (high - low)),
        pytest.approx(high, abs=0.15 * (high - low)),
    )
    assert found.p < 1e-6


def test_a_system_does_not_differ_from_itself_and_may_be_without_fault() -> None:
    squares, zeros = np.array([1.0, 4.0, 0.25]), np.zeros(3)
    same = by_roots(squares, squares)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert by_roots(squares, zeros).value == pytest.approx(np.sqrt(1.75))
    assert by_roots(zeros, zeros).p == 1


def test_user_and_item_mean_finds_a_sum_and_draws_it_to_the_mean() -> None:
    """A full table of 20 users by 20 items; with 20 rows each, and BIAS_SMOOTHING rows of nothing."""
    above = np.linspace(-1, 1, 20)
    train = interactions(*((3 + u, 3 + i, 3 + above[u] - 0.5 * above[i]) for u in range(20) for i in range(20)))
    fitted = BASELINES["user and item mean"].fit(train, num_items=25)

    kept = 20 / (20 + BIAS_SMOOTHING)
    asked = interactions((3, 3, 0), (22, 12, 0), (3, 24, 0), (2, 2, 0), (99, 3, 0))
    expected = [3 + kept * (-1 + 0.5), 3 + kept * (1 - 0.5 * above[9]), 3 - kept, 3, 3 + kept * 0.5]
    assert fitted.numbers(asked) == pytest.approx(expected, abs=1e-6)


def test_baselines_without_rows_are_finite() -> None:
    nothing = interactions((3, 3, 1.0)).chosen(np.zeros(1, bool))
    asked = interactions((3, 4, 0), (7, 2, 0))
    for baseline in BASELINES.values():
        assert np.isfinite(baseline.fit(nothing, num_items=5).numbers(asked)).all()


def test_positive_rows_are_above_the_mean_or_as_it_is_said() -> None:
    rows = interactions((3, 3, 2.5), (3, 4, 3.0), (3, 5, 3.5), (3, 6, 4.5))

    assert rows.positive.tolist() == [False, False, True, True]
    assert (rows + rows).observed().chosen(np.array([0, 3, 6])).positive.tolist() == [False, True, True]
    assert is_relevant(rows, "positive").tolist() == [False, False, True, True]
    assert is_relevant(rows, "all").all()
    assert is_relevant(rows, 4.5).tolist() == [False, False, False, True]
    assert is_relevant(rows, 3).tolist() == [False, True, True, True]
    assert interactions((3, 3, 0), (3, 4, 1), mean=None).positive.tolist() == [False, True]


def test_a_model_that_tells_no_numbers_stands_beside_the_baselines_without_figures() -> None:
    rows = interactions((3, 3, 2.5), (4, 4, 3.5), (3, 4, 5.0))
    asked, config = LabeledRows(rows, rows, 5), EvaluateConfig(bootstrap=10)

    found = measure_rows(np.zeros(3, np.float32), asked, config=config, probabilistic=False)
    assert list(found.estimates) == ["model", "user and item mean", "constant"]
    assert found.estimates["model"] == {}
    assert "model" not in found.scores
    perfect = measure_rows(rows.labels, asked, config=config, probabilistic=True)
    assert perfect.estimates["model"]["rmse"].value == perfect.estimates["model"]["mae"].value == 0
