"""What the model is measured against: by single rows one file each, and one line here; by rankings models of the registry."""

from __future__ import annotations

from recsys_cli.evaluation.baselines.baseline import PointwiseBaseline
from recsys_cli.evaluation.baselines.constant import Constant
from recsys_cli.evaluation.baselines.item_mean import ItemMean
from recsys_cli.evaluation.baselines.ranking import RANKING, fit_baseline

POINTWISE: dict[str, type[PointwiseBaseline]] = {
    "item mean": ItemMean,
    "constant": Constant,
}
"""By name, in the order of tables."""

__all__ = ["POINTWISE", "RANKING", "PointwiseBaseline", "fit_baseline"]
