"""What the model is measured against: by single rows one file each, and one line here; by rankings models of the registry."""

from __future__ import annotations

from recsys_cli.evaluation.baselines.baseline import NumberBaseline, PointwiseBaseline
from recsys_cli.evaluation.baselines.constant import ConstantBaseline
from recsys_cli.evaluation.baselines.item_mean import ItemMean
from recsys_cli.evaluation.baselines.ranking import RANKING, fit_baseline
from recsys_cli.evaluation.baselines.user_item_mean import UserItemMean

POINTWISE: dict[str, type[PointwiseBaseline]] = {
    "item mean": ItemMean,
    "constant": ConstantBaseline,
}
"""Of labels of 0 and 1, by name, in the order of tables."""

OF_NUMBERS: dict[str, type[NumberBaseline]] = {
    "user and item mean": UserItemMean,
    "constant": ConstantBaseline,
}
"""Of labels that are numbers, by name, in the order of tables."""

__all__ = ["OF_NUMBERS", "POINTWISE", "RANKING", "NumberBaseline", "PointwiseBaseline", "fit_baseline"]
