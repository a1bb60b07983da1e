"""Charts as SVG: bars, intervals, lines, histograms and labeled points; colors are classes of the page's style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from recsys_cli.page.scale import Axis, AxisScale, number

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


def box(kind: str, points: Iterable[float], *, hint: str) -> Markup:
    """Return a rectangle from (x1, y1) to (x2, y2) with a tooltip."""
    x1, y1, x2, y2 = points
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
        kind, coordinate(x1), coordinate(y1), coordinate(max(x2 - x1, 0)), coordinate(max(y2 - y1, 0)), hint
    )


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
class BarGroup:
    """One series of bars: a value and an interval per category, or None; without intervals, empty."""

    name: str
    values: Sequence[float | None]
    intervals: Sequence[tuple[float, float] | None] = ()


def bars(title: str, names: Sequence[str], groups: Sequence[BarGroup], *, x: Axis) -> Markup:
    """Draw horizontal bars grouped by category, from 0 or the axis's lower limit; empty markup without values but 0."""
    if not any(value for group in groups for value in group.values):
        return Markup("")
    ends = [value for group in groups for value in group.values if value is not None]
    ends += [high for group in groups for high in (pair[1] for pair in group.intervals if pair is not None)]
    scale = x.over([*ends, 0.0])
    left = widest(short(name) for name in names) + 10
    height = _TOP + _BOTTOM + len(names) * (len(groups) * _BAR + _GAP)
    parts = [*_frame(scale, left, height), *_rows(names, groups, scale, left)]
    legend = [(series(index), group.name) for index, group in enumerate(groups, start=1)]
    return figure(title, height=height, parts=parts, names=legend)


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


def _rows(names: Sequence[str], groups: Sequence[BarGroup], scale: AxisScale, left: float) -> Iterator[Markup]:
    each = len(groups) * _BAR + _GAP
    for row, name in enumerate(names):
        top = _TOP + row * each + _GAP / 2
        yield text(short(name), left - 6, top + len(groups) * _BAR / 2 + 4, anchor="end")
        for index, group in enumerate(groups):
            value = group.values[row]
            if value is None:
                continue
            y = top + index * _BAR
            ends = (left, y, _across(scale, left, value), y + _BAR - 1.5)
            yield box(f"bar {series(index + 1)}", ends, hint=f"{name}, {group.name}: {value:.4g}")
            interval = group.intervals[row] if group.intervals else None
            if interval is not None:
                low, high = (_across(scale, left, end) for end in interval)
                yield line("whisker", (low, y + _BAR / 2 - 0.75, high, y + _BAR / 2 - 0.75))


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
        band: Interval (low, high) of each point, shaded behind the line; empty for none.
        color: Number of its color; None for the index among the marks.
    """

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    markers: bool = False
    thin: bool = False
    dashed: bool = False
    joined: bool = True
    band: Sequence[tuple[float, float]] = ()
    color: int | None = None

    @property
    def reach(self) -> Sequence[float]:
        """Y values with the band."""
        return [*self.y, *(end for pair in self.band for end in pair)]


@dataclass(frozen=True)
class Histogram:
    """A histogram of ascending edges, one more than heights."""

    edges: Sequence[float]
    heights: Sequence[float]
    name: str = ""

    @property
    def x(self) -> Sequence[float]:
        """Bin edges."""
        return self.edges

    @property
    def reach(self) -> Sequence[float]:
        """Heights."""
        return self.heights


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


def chart(title: str, marks: Sequence[LineSeries | Histogram], *, x: Axis, y: Axis) -> Markup:
    """Draw lines, points and histograms from bottom to top; empty markup without values."""
    if not any(len(mark.x) for mark in marks):
        return Markup("")
    over = x.over(value for mark in marks for value in mark.x)
    up = y.over(value for mark in marks for value in mark.reach)
    plot = PlotArea(over, up, widest(label for _, label in up.ticks(5)) + 10)
    parts = [*draw_frame(plot)]
    for index, mark in enumerate(marks, start=1):  # all bands below all lines
        parts += _band(mark, index, plot) if isinstance(mark, LineSeries) else ()
    for index, mark in enumerate(marks, start=1):
        parts += _steps(mark, index, plot) if isinstance(mark, Histogram) else _line(mark, index, plot)
    names = [(_color(mark, index), mark.name) for index, mark in enumerate(marks, start=1) if len(mark.x)]
    return figure(title, height=HEIGHT, parts=parts, names=names)


def draw_frame(plot: PlotArea) -> Iterator[Markup]:
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


def _band(mark: LineSeries, index: int, plot: PlotArea) -> Iterator[Markup]:
    if not mark.band:
        return
    low, high = ([plot.at(x, pair[end]) for x, pair in zip(mark.x, mark.band, strict=True)] for end in (0, 1))
    points = " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in [*high, *reversed(low)])
    yield Markup('<polygon class="band {}" points="{}"/>').format(_color(mark, index), points)


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


def _color(mark: LineSeries | Histogram, index: int) -> str:
    if isinstance(mark, Histogram):
        return series(index)
    return "dashed" if mark.dashed else series(mark.color or index)


def _steps(mark: Histogram, index: int, plot: PlotArea) -> Iterator[Markup]:
    kind = f"bar {series(index)}"
    for low, high, height in zip(mark.edges, mark.edges[1:], mark.heights, strict=False):
        if height > 0:
            (x1, y1), (x2, y2) = plot.at(low, height), plot.at(high, plot.y.low)
            hint = f"{number(low)} – {number(high)}: {number(height)}"
            yield box(kind, (x1, y1, max(x2 - 0.6, x1 + 0.4), y2), hint=hint)


_NEAR, _LETTER_HEIGHT, _MARGIN = 6.0, 11.0, 0.06
Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in units of the figure."""


@dataclass(frozen=True)
class LabeledPoint:
    """A point with its label, its vertical interval if there is one, and the number of its color."""

    label: str
    x: float
    y: float
    interval: tuple[float, float] | None = None
    color: int = 1


def points(
    title: str, marks: Sequence[LabeledPoint], *, x: Axis, y: Axis, names: Sequence[tuple[int, str]] = ()
) -> Markup:
    """Draw labeled points; empty markup without any.

    `names` are number and name of each color in the legend.
    """
    if not marks:
        return Markup("")
    across = x.over(_with_margin([one.x for one in marks]))
    up = y.over(_with_margin([end for one in marks for end in (one.y, *(one.interval or ()))]))
    plot = PlotArea(across, up, widest(label for _, label in up.ticks(5)) + 10)
    parts = [*draw_frame(plot), *_whiskers(marks, plot), *_dots(marks, plot), *_labels(marks, plot)]
    return figure(title, height=HEIGHT, parts=parts, names=[(series(n), name) for n, name in names])


def _with_margin(values: Sequence[float]) -> list[float]:
    """Return the range of values with a margin on both sides; values from 0 stay from 0."""
    low, high = min(values), max(values)
    margin = _MARGIN * (high - low)
    return [max(low - margin, 0.0) if low >= 0 else low - margin, high + margin]


def _whiskers(marks: Sequence[LabeledPoint], plot: PlotArea) -> Iterator[Markup]:
    for one in marks:
        if one.interval is not None:
            (left, low), (_, high) = (plot.at(one.x, end) for end in one.interval)
            yield line(f"whisker {series(one.color)}", (left, low, left, high))


def _dots(marks: Sequence[LabeledPoint], plot: PlotArea) -> Iterator[Markup]:
    for one in marks:
        left, top = plot.at(one.x, one.y)
        yield Markup('<circle class="dot {}" cx="{}" cy="{}" r="3.2"><title>{}: {}, {}</title></circle>').format(
            series(one.color),
            coordinate(left),
            coordinate(top),
            one.label,
            plot.x.written(one.x),
            plot.y.written(one.y),
        )


def _labels(marks: Sequence[LabeledPoint], plot: PlotArea) -> Iterator[Markup]:
    """Yield the labels, each at a free place next to its point, or at least not on another point or label."""
    centers = [plot.at(one.x, one.y) for one in marks]
    taken: list[Box] = [(left - 4, top - 4, left + 4, top + 4) for left, top in centers]
    whiskers = [
        (left - 1, plot.at(one.x, one.interval[1])[1], left + 1, plot.at(one.x, one.interval[0])[1])
        for one, (left, _) in zip(marks, centers, strict=True)
        if one.interval is not None
    ]
    for one, (left, top) in zip(marks, centers, strict=True):
        places = list(_places(left, top, widest([short(one.label)])))
        places = [box for box in places if box[0] >= plot.left and box[2] <= WIDTH] or places
        legible = [box for box in places if not _hits(box, taken)] or places
        chosen = next((box for box in legible if not _hits(box, whiskers)), legible[0])
        taken.append(chosen)
        yield text(short(one.label), chosen[0], chosen[3] - 2)


def _places(left: float, top: float, width: float) -> Iterator[Box]:
    half = _LETTER_HEIGHT / 2
    for rows in (0, -1, 1, -2, 2, -3, 3, -4, 4):
        middle = top + rows * _LETTER_HEIGHT
        for start in (left + _NEAR, left - _NEAR - width):
            yield start, middle - half, start + width, middle + half


def _hits(one: Box, others: Sequence[Box]) -> bool:
    """Whether a box overlaps any of the others."""
    return any(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3] for other in others)
