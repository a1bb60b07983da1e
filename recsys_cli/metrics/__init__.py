"""Metrics. Imports NumPy only, so that `recsys ls` stays fast."""

from __future__ import annotations

from recsys_cli.metrics.labels import GROUPED, OF_NUMBERS, POINTWISE
from recsys_cli.metrics.lists import BEYOND
from recsys_cli.metrics.metric import (
    Catalog,
    GroupedMetric,
    Hits,
    ImpressionMetric,
    ListMetric,
    Metric,
    PointwiseMetric,
    Ranked,
    RankingMetric,
    Recommended,
)
from recsys_cli.metrics.rankings import IMPRESSION, OPTIONAL, RANKING

__all__ = [
    "BEYOND",
    "GROUPED",
    "IMPRESSION",
    "OF_NUMBERS",
    "OPTIONAL",
    "POINTWISE",
    "RANKING",
    "Catalog",
    "GroupedMetric",
    "Hits",
    "ImpressionMetric",
    "ListMetric",
    "Metric",
    "PointwiseMetric",
    "Ranked",
    "RankingMetric",
    "Recommended",
]
