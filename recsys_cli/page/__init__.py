"""Self-contained HTML pages with embedded style and SVG figures, hand-written for speed."""

from __future__ import annotations

from recsys_cli.page.bars import BarGroup, IntervalBar, bars, intervals
from recsys_cli.page.chart import Histogram, LineSeries, chart
from recsys_cli.page.document import Headline, render
from recsys_cli.page.points import LabeledPoint, points
from recsys_cli.page.scale import Axis, day, is_date, moment, share

__all__ = [
    "Axis",
    "BarGroup",
    "Headline",
    "Histogram",
    "IntervalBar",
    "LabeledPoint",
    "LineSeries",
    "bars",
    "chart",
    "day",
    "intervals",
    "is_date",
    "moment",
    "points",
    "render",
    "share",
]
