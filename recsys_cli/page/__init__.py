"""Pages that open offline: one HTML file with its style and its figures inside, light and dark, narrow and wide.

Figures are SVG written here: drawing them with a plotting library took longer than measuring what they show.
"""

from __future__ import annotations

from recsys_cli.page.bars import BarGroup, IntervalBar, bars, intervals
from recsys_cli.page.chart import Histogram, LineSeries, chart
from recsys_cli.page.document import render
from recsys_cli.page.scale import Axis, day, is_date, moment, share

__all__ = [
    "Axis",
    "BarGroup",
    "Histogram",
    "IntervalBar",
    "LineSeries",
    "bars",
    "chart",
    "day",
    "intervals",
    "is_date",
    "moment",
    "render",
    "share",
]
