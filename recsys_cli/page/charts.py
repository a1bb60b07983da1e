"""Two charts as SVG: intervals by name, and lines or dots; their axes; colors are classes of the page's style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from markupsafe import Markup

WIDTH = 400
"""Width of a figure in units; figures scale to the available width, including their text."""
LETTER = 6.4
"""Approximate width of a character in units."""
_COLORS = 6


def series(number: int) -> str:
    """Return the color class of a series, counted from 1."""
    return f"s{(number - 1) % _COLORS + 1}"


def figure(title: str, *, height: float, parts: Iterable[Markup], names: Iterable[tuple[str, str]]) -> Markup:
    """Return a figure: the legend as HTML, the rest as SVG.

    `names` are class (see `series`) and name of each series; those without a name are not in the legend.
    """
    legend = Markup("").join(Markup('<span class="{}">{}</span>').format(kind, name) for kind, name in names if name)
    head = Markup('<div class="legend">{}</div>').format(legend) if legend else Markup("")
    view, body = f"0 0 {WIDTH} {coordinate(height)}", Markup("").join(parts)
    return head + Markup('<svg class="chart" viewBox="{}" role="img" aria-label="{}">{}</svg>').format(
        view, title, body
    )


def text(words: str, x: float, y: float, *, anchor: str = "start", kind: str = "") -> Markup:
    """Return a text at a point; `kind` is a class of the page's style."""
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        coordinate(x), coordinate(y), anchor, Markup(' class="{}"').format(kind) if kind else "", words
    )


def line(kind: str, points: Iterable[float]) -> Markup:
    """Return a line from (x1, y1) to (x2, y2)."""
    x1, y1, x2, y2 = map(coordinate, points)
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def coordinate(value: float) -> str:
    """Format a coordinate, rounded to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def widest(labels: Iterable[str]) -> float:
    """Return the approximate width of the longest label in units."""
    return LETTER * max((len(label) for label in labels), default=0)


_BAR, _GAP, _TOP, _BOTTOM, _RIGHT = 11.0, 9.0, 6.0, 40.0, 14.0
_LONGEST = 22
"""Maximum characters of a name; the tooltip has the full name."""


@dataclass(frozen=True)
class IntervalBar:
    """A value with its interval, and the number of its color."""

    name: str
    value: float
    low: float
    high: float
    color: int = 1


def intervals(
    title: str, estimates: Sequence[IntervalBar], *, x: Axis, names: Mapping[int, str] = MappingProxyType({})
) -> Markup:
    """Draw points with intervals, one per row, and a line at zero if it is on the axis; empty markup without estimates.

    `names` are those of the colors; the legend has the drawn ones.
    """
    if not estimates:
        return Markup("")
    scale = x.over(end for one in estimates for end in (one.low, one.value, one.high))
    left = widest(short(one.name) for one in estimates) + 10
    height = _TOP + _BOTTOM + len(estimates) * (_BAR + _GAP)
    parts = [*_frame(scale, left, height)]
    if scale.low <= 0 <= scale.high:
        zero = _across(scale, left, 0.0)
        parts.append(line("axis", (zero, _TOP, zero, height - _BOTTOM)))
    legend = [(series(n), name) for n, name in names.items() if any(one.color == n for one in estimates)]
    for row, one in enumerate(estimates):
        parts += _interval(one, scale, left, _TOP + (row + 0.5) * (_BAR + _GAP))
    return figure(title, height=height, parts=parts, names=legend)


def _interval(one: IntervalBar, scale: AxisScale, left: float, y: float) -> Iterator[Markup]:
    low, middle, high = (_across(scale, left, value) for value in (one.low, one.value, one.high))
    yield text(short(one.name), left - 6, y + 4, anchor="end")
    yield line(f"whisker {series(one.color)}", (low, y, high, y))
    yield Markup(
        '<circle class="dot {}" cx="{}" cy="{}" r="3.2"><title>{}: {:.4g}, {:.4g} to {:.4g}</title></circle>'
    ).format(series(one.color), coordinate(middle), coordinate(y), one.name, one.value, one.low, one.high)


def _across(scale: AxisScale, left: float, value: float) -> float:
    return left + scale(value) * (WIDTH - _RIGHT - left)


def _frame(scale: AxisScale, left: float, height: float) -> Iterator[Markup]:
    ground = height - _BOTTOM
    for value, label in scale.ticks(5):
        x = _across(scale, left, value)
        yield line("grid", (x, _TOP, x, ground))
        yield text(label, x, ground + 16, anchor="middle")
    yield text(scale.axis.label, WIDTH - _RIGHT, height - 6, anchor="end", kind="label")


def short(name: str) -> str:
    """Return a name, cut if it is long."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


HEIGHT = 250.0
_CHART_TOP = 24.0
_LABEL_GAP = 6.0
"""Minimum space between two tick labels."""


@dataclass(frozen=True)
class LineSeries:
    """A line or a scatter of points.

    Attributes:
        dashed: Draw a dashed reference line.
        color: Number of its color; None for the index among the marks.
    """

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    markers: bool = False
    thin: bool = False
    dashed: bool = False
    joined: bool = True
    color: int | None = None


@dataclass(frozen=True)
class PlotArea:
    """The plot area with its scales."""

    x: AxisScale
    y: AxisScale
    left: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the coordinates of a point in figure units."""
        width, height = WIDTH - _RIGHT - self.left, HEIGHT - _BOTTOM - _CHART_TOP
        return self.left + self.x(x) * width, HEIGHT - _BOTTOM - self.y(y) * height


def chart(title: str, marks: Sequence[LineSeries], *, x: Axis, y: Axis) -> Markup:
    """Draw lines and dots from bottom to top; empty markup without values."""
    if not any(len(mark.x) for mark in marks):
        return Markup("")
    up = y.over(value for mark in marks for value in mark.y)
    plot = PlotArea(x.over(value for mark in marks for value in mark.x), up, widest(t for _, t in up.ticks(5)) + 10)
    parts = [*_axes(plot)]
    for index, mark in enumerate(marks, start=1):
        parts += _line(mark, index, plot)
    names = [(_color(mark, index), mark.name) for index, mark in enumerate(marks, start=1) if len(mark.x)]
    return figure(title, height=HEIGHT, parts=parts, names=names)


def _axes(plot: PlotArea) -> Iterator[Markup]:
    """Yield grid, axes and labels."""
    ground, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for value, label in plot.y.ticks(5):
        _, y = plot.at(plot.x.low, value)
        yield line("grid", (plot.left, y, right, y))
        yield text(label, plot.left - 6, y + 4, anchor="end")
    ticks = [(plot.at(value, plot.y.low)[0], label) for value, label in plot.x.ticks(6)]
    for x, _ in ticks:
        yield line("grid", (x, _CHART_TOP, x, ground))
    for x, label in _apart(ticks):
        yield text(label, x, ground + 16, anchor="middle")
    yield line("axis", (plot.left, ground, right, ground))
    yield text(plot.y.axis.label, 2, 12, kind="label")
    yield text(plot.x.axis.label, right, HEIGHT - 6, anchor="end", kind="label")


def _apart(ticks: Sequence[tuple[float, str]]) -> Sequence[tuple[float, str]]:
    """Return every n-th tick, for the smallest n without overlapping labels."""
    inside = [(x, label) for x, label in ticks if widest([label]) / 2 <= x <= WIDTH - widest([label]) / 2]
    for every in range(1, len(inside) + 1):
        chosen = inside[::every]
        pairs = pairwise(chosen)
        if all(right - left >= widest([one, two]) + _LABEL_GAP for (left, one), (right, two) in pairs):
            return chosen
    return inside[:1]


def _line(mark: LineSeries, index: int, plot: PlotArea) -> Iterator[Markup]:
    points = [plot.at(x, y) for x, y in zip(mark.x, mark.y, strict=True)]
    if mark.joined:
        kind = f"line {_color(mark, index)}{' thin' if mark.thin else ''}"
        path = " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)
        yield Markup('<polyline class="{}" points="{}"/>').format(kind, path)
    if mark.markers or not mark.joined or len(points) == 1:
        for (cx, cy), x, y in zip(points, mark.x, mark.y, strict=True):
            yield Markup('<circle class="dot {}" cx="{}" cy="{}" r="2.6"><title>{}, {}</title></circle>').format(
                series(mark.color or index), coordinate(cx), coordinate(cy), plot.x.written(x), plot.y.written(y)
            )


def _color(mark: LineSeries, index: int) -> str:
    return "dashed" if mark.dashed else series(mark.color or index)


Tick = tuple[float, str]

_FIRST_DATE, _LAST_DATE = 10**8, 10**11
_DAY = 86_400
_STEPS = (
    1, 5, 15, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 91 * _DAY, 182 * _DAY,
)  # fmt: skip
"""Steps of times in seconds."""


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes:
        kind: Kind of values. `share` shows 0.5 as 50 %, `time` takes seconds since 1970, `names` takes category indices.
        low: Lower limit; None for the minimum.
        high: Upper limit; None for the maximum.
    """

    label: str
    kind: Literal["linear", "share", "log", "time", "names"] = "linear"
    low: float | None = None
    high: float | None = None
    names: Sequence[str] = ()

    def over(self, values: Iterable[float]) -> AxisScale:
        """Return the scale for a range of values."""
        if self.kind == "names":
            return AxisScale(self, -0.5, len(self.names) - 0.5)
        valid = [value for value in values if self.kind != "log" or value > 0]
        low = self.low if self.low is not None else min(valid, default=1.0)
        high = self.high if self.high is not None else max(valid, default=low)
        if high <= low:  # a single value, in the middle
            low, high = (low / 2, low * 2) if self.kind == "log" else (low - 0.5, low + 0.5)
        return AxisScale(self, low, high)


@dataclass(frozen=True)
class AxisScale:
    """An axis with its limits."""

    axis: Axis
    low: float
    high: float

    def __call__(self, value: float) -> float:
        """Return the position of a value in [0, 1]."""
        if self.axis.kind == "log":
            position = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            position = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, position))

    def ticks(self, about: int) -> list[Tick]:
        """Return about so many ticks: values with labels."""
        match self.axis.kind:
            case "log":
                return [(value, number(value)) for value in _decades(self.low, self.high, about)]
            case "names":
                return [(float(index), name) for index, name in enumerate(self.axis.names)]
            case "time":
                return list(_dates(self.low, self.high, about))
            case "share":
                return [(value, f"{100 * value:.6g} %") for value in _round_values(self.low, self.high, about)]
        return [(value, number(value)) for value in _round_values(self.low, self.high, about)]

    def written(self, value: float) -> str:
        """Return a value as text for a tooltip."""
        return self.axis.names[round(value)] if self.axis.kind == "names" else number(value)


def number(value: float) -> str:
    """Format a number for an axis: 1500 as 1.5k."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.6g}{suffix}"
    return f"{value:.6g}"


def share(part: float, whole: float) -> str:
    """Format part / whole as a percentage: `<0.1 %` just above 0, `>99.9 %` just below 1."""
    fraction = part / whole if whole else 0.0
    if 1e-9 < fraction < 0.0005:
        return "<0.1 %"
    if 0.9995 <= fraction < 1 - 1e-9:
        return ">99.9 %"
    return f"{100 * fraction:.1f} %" if fraction > 1e-9 else "0"


def is_date(low: float, high: float) -> bool:
    """Whether times are plausibly seconds since 1970: years 1973 to 5138."""
    return _FIRST_DATE <= low <= high < _LAST_DATE


def moment(seconds: float) -> str:
    """Format a time in UTC, or as a number if it is no date."""
    if not is_date(seconds, seconds):
        return f"{seconds:,.0f}" if float(seconds).is_integer() else f"{seconds:,.6g}"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def day(seconds: float) -> str:
    """Format the day of a time in UTC, or a number if it is no date."""
    return moment(seconds).partition(" ")[0]


def _round_values(low: float, high: float, about: int) -> list[float]:
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(multiple * step, 12) for multiple in range(first, last + 1)]


def _decades(low: float, high: float, about: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, round((last - first) / about))
    values = [10.0**power for power in range(first, last + 1, every)]
    if last - first <= 2:
        values = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
    return [value for value in values if low * 0.999 <= value <= high * 1.001]


def _dates(low: float, high: float, about: int) -> Iterator[Tick]:
    """Yield the starts of years, or the multiples of a step in a shorter time."""
    step = next((step for step in _STEPS if step >= (high - low) / about), None)
    if step is None:
        first, last = (1970 + end / (365.25 * _DAY) for end in (low, high))
        years = [int(year) for year in _round_values(first, last, about) if year == int(year)]
        starts = [(datetime(year, 1, 1, tzinfo=UTC).timestamp(), f"{year}") for year in years]
        yield from (tick for tick in starts if low <= tick[0] <= high)
        return
    form = "%Y-%m-%d" if step >= 30 * _DAY else "%m-%d" if step >= _DAY else "%H:%M" if step >= 60 else "%H:%M:%S"
    for seconds in range(math.ceil(low / step) * step, math.floor(high) + 1, step):
        yield float(seconds), f"{datetime.fromtimestamp(seconds, UTC):{form}}"
