"""Label tasks: the pointwise metrics of binary and numeric labels, and the default of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from recsys_cli.metrics import OF_NUMBERS, POINTWISE
from recsys_cli.metrics.metric import PointwiseMetric


@dataclass(frozen=True)
class LabelTask:
    """Metrics of one type of label.

    Attributes:
        headlines: Names for a short table; the first is the default metric, always measured in validation.
        leaderboard: Names for a bench without `bench.metrics`.
    """

    metrics: Mapping[str, PointwiseMetric]
    headlines: tuple[str, ...]
    leaderboard: tuple[str, ...]

    @property
    def default(self) -> PointwiseMetric:
        """Default monitored metric."""
        return self.metrics[self.headlines[0]]


BINARY = LabelTask(POINTWISE, headlines=("auc", "gauc", "log_loss"), leaderboard=("ndcg@10", "recall@10", "auc"))
REGRESSION = LabelTask(OF_NUMBERS, headlines=("rmse", "mae"), leaderboard=("rmse", "mae", "ndcg@10"))
TASKS: Mapping[str, LabelTask] = {"binary": BINARY, "regression": REGRESSION}
"""Metrics by label task (`features.label`)."""

COMPARED: Mapping[str, PointwiseMetric] = {
    metric.name: metric for task in TASKS.values() for metric in task.metrics.values() if metric.by_row is not None
}
"""Pointwise metrics with paired tests, by name."""


def headlines(names: Collection[str]) -> tuple[str, ...]:
    """Return the headline metrics among names of pointwise metrics."""
    task = BINARY if BINARY.default.name in names else REGRESSION
    return tuple(name for name in task.headlines if name in names)
