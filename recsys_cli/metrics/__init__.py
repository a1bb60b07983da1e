"""Registry of metrics: one module each, and one line here. Imports NumPy only, so that `recsys ls` stays fast."""

from __future__ import annotations

from typing import TypeVar

from recsys_cli.metrics.accuracy import ACCURACY
from recsys_cli.metrics.arp import ARP
from recsys_cli.metrics.auc import AUC
from recsys_cli.metrics.calibration import CALIBRATION
from recsys_cli.metrics.capped_recall import CAPPED_RECALL
from recsys_cli.metrics.coverage import COVERAGE
from recsys_cli.metrics.diversity import DIVERSITY
from recsys_cli.metrics.ece import ECE
from recsys_cli.metrics.f1 import F1
from recsys_cli.metrics.gauc import GAUC
from recsys_cli.metrics.gini import GINI
from recsys_cli.metrics.hr import HR
from recsys_cli.metrics.impression_auc import IMPRESSION_AUC
from recsys_cli.metrics.impression_mrr import IMPRESSION_MRR
from recsys_cli.metrics.impression_ndcg import IMPRESSION_NDCG
from recsys_cli.metrics.log_loss import LOG_LOSS
from recsys_cli.metrics.mae import MAE, MAE_OF_ERRORS
from recsys_cli.metrics.map import MAP
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
from recsys_cli.metrics.mrr import MRR
from recsys_cli.metrics.ndcg import NDCG
from recsys_cli.metrics.normalized_entropy import NORMALIZED_ENTROPY
from recsys_cli.metrics.novelty import NOVELTY
from recsys_cli.metrics.pr_auc import PR_AUC
from recsys_cli.metrics.precision import PRECISION
from recsys_cli.metrics.psndcg import PSNDCG
from recsys_cli.metrics.recall import RECALL
from recsys_cli.metrics.rmse import RMSE, RMSE_OF_ERRORS
from recsys_cli.metrics.serendipity import SERENDIPITY

_M = TypeVar("_M", bound=Metric)


def _by_name(*metrics: _M) -> dict[str, _M]:
    return {metric.name: metric for metric in metrics}


POINTWISE: dict[str, PointwiseMetric] = _by_name(
    AUC, PR_AUC, LOG_LOSS, NORMALIZED_ENTROPY, ACCURACY, F1, RMSE, MAE, ECE, CALIBRATION
)
"""Metrics of scores against binary labels, by name, in table order."""

OF_NUMBERS: dict[str, PointwiseMetric] = _by_name(RMSE_OF_ERRORS, MAE_OF_ERRORS)
"""Metrics of numeric predictions, in the units of the label, by name, in table order. Computed from counts of errors:
the score of a row is its error."""

GROUPED: dict[str, GroupedMetric] = _by_name(GAUC)
"""Metrics per user of scores against labels, by name; after the pointwise metrics in tables."""

IMPRESSION: dict[str, ImpressionMetric] = _by_name(IMPRESSION_AUC, IMPRESSION_MRR, IMPRESSION_NDCG)
"""Metrics per impression of given candidates, by name; after the metrics per user in tables."""

RANKING: dict[str, RankingMetric] = _by_name(HR, NDCG, MRR, RECALL, PRECISION, MAP)
"""Accuracy metrics of rankings, by name, in table order."""

OPTIONAL: dict[str, RankingMetric] = _by_name(CAPPED_RECALL)
"""Metrics of published protocols, measured where `evaluate.metrics` names them."""

BEYOND: dict[str, ListMetric] = _by_name(PSNDCG, COVERAGE, GINI, NOVELTY, ARP, DIVERSITY, SERENDIPITY)
"""Debiased and beyond-accuracy metrics of rankings, by name, in table order."""

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
