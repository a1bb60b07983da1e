"""Metrics of other packages with guarded functions: exceptions, types and shapes become errors that name the metric.

An undefined value is NaN, as in the metrics of this package: the value of a pointwise or list metric, and the values of
single users of a list metric. The values of ranking and grouped metrics are finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from recsys_cli.errors import ConfigError
from recsys_cli.metrics.metric import (
    ByRow,
    GroupedMetric,
    Hits,
    Influence,
    ListMetric,
    Metric,
    PointwiseMetric,
    RankingMetric,
    Recommended,
)
from recsys_cli.metrics.score_counts import Floats, ScoreCounts
from recsys_cli.plugins import FIX_PLUGIN, guarded

_R = TypeVar("_R")
_Parts = Callable[[ScoreCounts], tuple[npt.NDArray[np.int64], Floats]]


def checked(metric: Metric) -> Metric:
    """Return a metric of another package with guarded functions and checked values."""
    return _KINDS[type(metric)](metric)


@dataclass(frozen=True)
class _Checks:
    """The checks of the values of one function.

    Attributes:
        title: Name of the metric and its function in messages.
    """

    title: str

    def call(self, function: Callable[..., _R], *arguments: object) -> _R:
        """Call the function; its exceptions become a ConfigError."""
        with guarded(f"{self.title} failed", hint=FIX_PLUGIN):
            return function(*arguments)

    def pair(self, values: object, expected: str) -> tuple[object, object]:
        """Return two values.

        Raises:
            ConfigError: The value is no tuple of two.
        """
        if not isinstance(values, tuple) or len(values) != 2:
            raise ConfigError(f"{self.title} returns {type(values).__name__}; expected: a tuple of {expected}")
        return values

    def numbers(self, values: object, expected: str, *shapes: tuple[int, ...], finite: bool = False) -> Floats:
        """Return values as an array of float64.

        Args:
            values: The returned values.
            expected: The expected shape in words.
            shapes: The valid shapes.
            finite: Whether NaN and infinity are errors.

        Raises:
            ConfigError: The values are no real numbers, or of another shape.
        """
        array = self.call(np.asarray, values)
        if array.dtype.kind not in "biuf" or array.shape not in shapes:
            shape = "one value" if array.shape == () else f"shape {array.shape}"
            expects = " or ".join(str(one) if one else "one value" for one in shapes)
            raise ConfigError(
                f"{self.title} returns {array.dtype}, {shape}; expected: real numbers, {expected}, here {expects}"
            )
        if finite and not np.isfinite(array).all():
            count = np.count_nonzero(~np.isfinite(array))
            raise ConfigError(
                f"{self.title} returns NaN or infinity in {count:,} of {array.size:,} values; expected: {expected}, finite",
                hint="leave undefined users out of a GroupedMetric; a ListMetric takes NaN for them",
            )
        return array.astype(np.float64)


def _pointwise(metric: PointwiseMetric) -> PointwiseMetric:
    compute, influence = (_Checks(f"the metric {metric.name} ({part})") for part in ("compute", "influence"))

    def computed(counts: ScoreCounts) -> float:
        return float(compute.numbers(compute.call(metric.compute, counts), "one value", ()))

    def influences(counts: ScoreCounts) -> Influence:
        expected = "influences of positive and negative rows, each of shape (G,) for G scores"
        both = influence.pair(influence.call(metric.influence, counts), expected)
        of_positive, of_negative = (influence.numbers(one, expected, counts.logits.shape, finite=True) for one in both)
        return of_positive, of_negative

    return replace(
        metric,
        compute=computed,
        influence=influences,
        parts=metric.parts and _parts(metric.name, metric.parts),
        by_row=metric.by_row and _by_row(metric.name, metric.by_row),
    )


def _parts(name: str, function: _Parts) -> _Parts:
    checks = _Checks(f"the metric {name} (parts)")

    def parts(counts: ScoreCounts) -> tuple[npt.NDArray[np.int64], Floats]:
        expected = "the part of each score, of shape (G,), and the B parts, of shape (B,)"
        of_score, values = checks.pair(checks.call(function, counts), expected)
        shape = (checks.call(np.size, values),)
        return (
            checks.numbers(of_score, expected, counts.logits.shape, finite=True).astype(np.int64),
            checks.numbers(values, expected, shape, finite=True),
        )

    return parts


def _by_row(name: str, by_row: ByRow) -> ByRow:
    checks = _Checks(f"the metric {name} (by_row)")

    def values(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Floats:
        found = checks.call(by_row.values, labels, scores)
        return checks.numbers(found, "shape (N,) for N rows", np.shape(labels), finite=True)

    return replace(by_row, values=values)


def _grouped(metric: GroupedMetric) -> GroupedMetric:
    checks = _Checks(f"the metric {metric.name} (compute)")

    def computed(
        users: npt.NDArray[np.integer], labels: npt.NDArray[np.float32], scores: npt.NDArray[np.floating]
    ) -> tuple[Floats, Floats]:
        expected = "values and weights, both of shape (G,) for G users with a defined value"
        values, weights = checks.pair(checks.call(metric.compute, users, labels, scores), expected)
        shape = (checks.call(np.size, values),)
        return (
            checks.numbers(values, expected, shape, finite=True),
            checks.numbers(weights, expected, shape, finite=True),
        )

    return replace(metric, compute=computed)


def _ranking(metric: RankingMetric) -> RankingMetric:
    checks = _Checks(f"the metric {metric.name} (compute)")

    def computed(hits: Hits, k: int) -> Floats:
        found = checks.call(metric.compute, hits, k)
        return checks.numbers(found, "shape (U,) for U users", hits.num_relevant.shape, finite=True)

    return replace(metric, compute=computed)


def _list(metric: ListMetric) -> ListMetric:
    checks = _Checks(f"the metric {metric.name} (compute)")

    def computed(lists: Recommended, k: int) -> Floats:
        found = checks.call(metric.compute, lists, k)
        return checks.numbers(found, "shape (U,) for U users or one value", lists.num_relevant.shape, ())

    return replace(metric, compute=computed)


_KINDS: dict[type, Callable[..., Metric]] = {
    PointwiseMetric: _pointwise,
    GroupedMetric: _grouped,
    RankingMetric: _ranking,
    ListMetric: _list,
}
