"""Baselines of every evaluation: pointwise ones are defined here, ranking ones are models of the registry."""

from __future__ import annotations

from recsys_cli.evaluation.baselines.baseline import NumberBaseline, PointwiseBaseline
from recsys_cli.evaluation.baselines.constant import ConstantBaseline
from recsys_cli.evaluation.baselines.item_mean import ItemMean
from recsys_cli.evaluation.baselines.ranking import RANKING, fit_baseline
from recsys_cli.evaluation.baselines.user_item_mean import UserItemMean

POINTWISE: dict[str, type[PointwiseBaseline]] = {"item mean": ItemMean, "constant": ConstantBaseline}
"""Baselines for binary labels by name, in table order."""

OF_NUMBERS: dict[str, type[NumberBaseline]] = {"user and item mean": UserItemMean, "constant": ConstantBaseline}
"""Baselines for numeric labels by name, in table order."""

__all__ = ["OF_NUMBERS", "POINTWISE", "RANKING", "NumberBaseline", "PointwiseBaseline", "fit_baseline"]
