"""Two charts as SVG: intervals by name, and lines or dots; colors are classes of the page's style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from recsys_cli.page.scale import Axis, AxisScale

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
    title: str, estimates: Sequence[IntervalBar], *, x: Axis, names: Sequence[tuple[int, str]] = ()
) -> Markup:
    """Draw points with intervals, one per row, and a line at zero if it is on the axis; empty markup without estimates.

    `names` are number and name of each color in the legend.
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
    for row, one in enumerate(estimates):
        parts += _interval(one, scale, left, _TOP + (row + 0.5) * (_BAR + _GAP))
    return figure(title, height=height, parts=parts, names=[(series(n), name) for n, name in names])


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
                series(mark.color or index),
                coordinate(cx),
                coordinate(cy),
                plot.x.written(x),
                plot.y.written(y),
            )


def _color(mark: LineSeries, index: int) -> str:
    return "dashed" if mark.dashed else series(mark.color or index)
