"""What the model is measured against: one file each, and one line here."""

from __future__ import annotations

from recsys_cli.evaluation.baselines.baseline import PointwiseBaseline, RankingBaseline
from recsys_cli.evaluation.baselines.constant import Constant
from recsys_cli.evaluation.baselines.item_mean import ItemMean
from recsys_cli.evaluation.baselines.popularity import Popularity

POINTWISE: dict[str, type[PointwiseBaseline]] = {
    "item mean": ItemMean,
    "constant": Constant,
}
"""By name, in the order of tables."""

RANKING: dict[str, type[RankingBaseline]] = {
    "popularity": Popularity,
}
"""By name, in the order of tables."""

__all__ = ["POINTWISE", "RANKING", "PointwiseBaseline", "RankingBaseline"]
