"""Metrics of plugins: wrong values, shapes and exceptions become errors that name the metric."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from recsys_cli.errors import ConfigError
from recsys_cli.metrics import (
    BEYOND,
    Catalog,
    GroupedMetric,
    Hits,
    ListMetric,
    PointwiseMetric,
    RankingMetric,
    Recommended,
)
from recsys_cli.metrics.foreign import foreign
from recsys_cli.metrics.metric import ByRow, ScoreCounts

COUNTS = ScoreCounts.of(np.array([0, 1, 1], np.float32), np.array([0.0, 1.0, 2.0]))
HITS = Hits(np.eye(2, dtype=bool), np.ones(2, np.int64))
LISTS = Recommended(
    HITS.hits, HITS.num_relevant, np.zeros((2, 2), np.int32), np.zeros((2, 2), np.int64),
    Catalog(np.array([3, 1]), 4, np.array([], np.int64), np.zeros(3, np.int64)),
)  # fmt: skip
GIVEN: dict[type, tuple[Any, ...]] = {
    PointwiseMetric: (COUNTS,),
    GroupedMetric: (np.array([1, 1]), np.zeros(2, np.float32), np.zeros(2)),
    RankingMetric: (HITS, 1),
    ListMetric: (LISTS, 1),
}
HALVES = np.full(3, 0.5)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a metric as a config names it."""
    monkeypatch.setenv("RECSYS_TRUST", "their_metrics")

    def get(metric: object) -> Any:
        module = ModuleType("their_metrics")
        module.IT = metric  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "their_metrics", module)
        return foreign("their_metrics:IT")

    return get


def metric_of(kind: type, compute: Any, **options: Any) -> Any:
    if kind is PointwiseMetric:
        return PointwiseMetric(
            "it", "It", "lower", compute, options.pop("influence", lambda c: (HALVES, HALVES)), **options
        )
    return ListMetric("it", "It", None, compute) if kind is ListMetric else kind("it", "It", compute)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (PointwiseMetric, None, "TypeError: float"),
        (PointwiseMetric, [0.5], "TypeError: float"),
        (GroupedMetric, 0.5, "TypeError: cannot unpack"),
        (GroupedMetric, (np.ones(2), np.ones(3)), r"float64 of shape \(3,\); expected: real numbers of shape \(2,\)"),
        (GroupedMetric, (np.array([np.nan, 1]), np.ones(2)), "NaN or infinity in 1 of 2 values"),
        (RankingMetric, 0.5, r"float64 of shape \(\); expected: real numbers of shape \(2,\)"),
        (RankingMetric, np.ones((2, 1)), r"float64 of shape \(2, 1\)"),
        (RankingMetric, np.array([1, 1j]), "complex128 of shape"),
        (RankingMetric, np.array([np.inf, 1]), "NaN or infinity in 1 of 2 values"),
        (ListMetric, np.ones(3), r"float64 of shape \(3,\); expected: real numbers of shape \(2,\) or \(\)"),
    ],
)
def test_wrong_value_names_the_metric_and_the_shape(checked: Any, kind: type, value: object, message: str) -> None:
    metric = checked(metric_of(kind, lambda *given: value))
    with pytest.raises(ConfigError, match=rf"the metric their_metrics:IT \(compute\) failed: (ValueError: )?{message}"):
        metric.compute(*GIVEN[kind])


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration, SystemExit])
def test_exception_names_the_metric(checked: Any, kind: type, error: type[BaseException]) -> None:
    def compute(*given: object) -> object:
        raise error

    with pytest.raises(ConfigError, match=rf"the metric their_metrics:IT \(compute\) failed: {error.__name__}"):
        checked(metric_of(kind, compute)).compute(*GIVEN[kind])


def test_undefined_values_are_nan_as_in_metrics_here(checked: Any) -> None:
    assert np.isnan(checked(metric_of(PointwiseMetric, lambda counts: np.nan)).compute(COUNTS))
    of_users = checked(metric_of(ListMetric, lambda lists, k: np.array([np.nan, 1]))).compute(LISTS, 1)
    np.testing.assert_array_equal(of_users, [np.nan, 1])
    assert np.isnan(checked(BEYOND["gini"]).compute(LISTS, 1)) == np.isnan(BEYOND["gini"].compute(LISTS, 1))


def test_numbers_of_any_real_type_are_values(checked: Any) -> None:
    assert checked(metric_of(RankingMetric, lambda hits, k: hits.hits[:, 0])).compute(HITS, 1).tolist() == [1, 0]
    assert checked(metric_of(ListMetric, lambda lists, k: 3)).compute(LISTS, 1).shape == ()


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("influence", (HALVES, HALVES[:2]), r"float64 of shape \(2,\); .* of shape \(3,\)"),
        ("influence", (HALVES, HALVES * np.nan), "NaN or infinity in 3 of 3 values"),
        ("parts", (np.zeros(2, np.int64), HALVES), r"int64 of shape \(2,\); .* of shape \(3,\)"),
    ],
)
def test_wrong_influence_names_the_metric(checked: Any, part: str, value: object, message: str) -> None:
    metric = checked(metric_of(PointwiseMetric, lambda counts: 0.5, **{part: lambda counts: value}))
    with pytest.raises(ConfigError, match=rf"the metric their_metrics:IT \({part}\) failed: ValueError: {message}"):
        getattr(metric, part)(COUNTS)


def test_wrong_row_values_name_the_metric(checked: Any) -> None:
    by_row = ByRow(lambda labels, scores: np.zeros(2))
    metric = checked(metric_of(PointwiseMetric, lambda counts: 0.5, by_row=by_row))
    with pytest.raises(ConfigError, match=r"their_metrics:IT \(by_row\) failed: ValueError: float64 of shape \(2,\)"):
        metric.by_row.values(np.zeros(3), np.zeros(3))
