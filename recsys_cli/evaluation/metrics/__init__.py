"""The metrics: one file each, and one line here. Numpy only, so that listing them costs nothing."""

from __future__ import annotations

from recsys_cli.evaluation.metrics.accuracy import ACCURACY
from recsys_cli.evaluation.metrics.auc import AUC
from recsys_cli.evaluation.metrics.calibration import CALIBRATION
from recsys_cli.evaluation.metrics.ece import ECE
from recsys_cli.evaluation.metrics.hr import HR
from recsys_cli.evaluation.metrics.log_loss import LOG_LOSS
from recsys_cli.evaluation.metrics.map import MAP
from recsys_cli.evaluation.metrics.metric import Hits, PointwiseMetric, RankingMetric
from recsys_cli.evaluation.metrics.mrr import MRR
from recsys_cli.evaluation.metrics.ndcg import NDCG
from recsys_cli.evaluation.metrics.precision import PRECISION
from recsys_cli.evaluation.metrics.recall import RECALL

POINTWISE: dict[str, PointwiseMetric] = {
    metric.name: metric
    for metric in (
        AUC,
        LOG_LOSS,
        ACCURACY,
        ECE,
        CALIBRATION,
    )
}
"""By name, in the order of tables."""

RANKING: dict[str, RankingMetric] = {
    metric.name: metric
    for metric in (
        HR,
        NDCG,
        MRR,
        RECALL,
        PRECISION,
        MAP,
    )
}
"""By name, in the order of tables."""

__all__ = ["POINTWISE", "RANKING", "Hits", "PointwiseMetric", "RankingMetric"]
