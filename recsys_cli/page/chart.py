"""Line charts, scatter plots and histograms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from recsys_cli.page import frame
from recsys_cli.page.scale import Axis, AxisScale, number

HEIGHT = 250.0
_TOP, _BOTTOM, _RIGHT = 24.0, 40.0, 14.0
_GAP = 6.0
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
        width, height = frame.WIDTH - _RIGHT - self.left, HEIGHT - _BOTTOM - _TOP
        return self.left + self.x(x) * width, HEIGHT - _BOTTOM - self.y(y) * height


def chart(title: str, marks: Sequence[LineSeries | Histogram], *, x: Axis, y: Axis) -> Markup:
    """Draw lines, points and histograms from bottom to top; empty markup without values."""
    if not any(len(mark.x) for mark in marks):
        return Markup("")
    over = x.over(value for mark in marks for value in mark.x)
    up = y.over(value for mark in marks for value in mark.reach)
    plot = PlotArea(over, up, frame.widest(label for _, label in up.ticks(5)) + 10)
    parts = [*draw_frame(plot)]
    for index, mark in enumerate(marks, start=1):  # all bands below all lines
        parts += _band(mark, index, plot) if isinstance(mark, LineSeries) else ()
    for index, mark in enumerate(marks, start=1):
        parts += _steps(mark, index, plot) if isinstance(mark, Histogram) else _line(mark, index, plot)
    names = [(_color(mark, index), mark.name) for index, mark in enumerate(marks, start=1) if len(mark.x)]
    return frame.figure(title, height=HEIGHT, parts=parts, names=names)


def draw_frame(plot: PlotArea) -> Iterator[Markup]:
    """Yield grid, axes and labels."""
    ground, right = HEIGHT - _BOTTOM, frame.WIDTH - _RIGHT
    for value, label in plot.y.ticks(5):
        _, y = plot.at(plot.x.low, value)
        yield frame.line("grid", (plot.left, y, right, y))
        yield frame.text(label, plot.left - 6, y + 4, anchor="end")
    ticks = [(plot.at(value, plot.y.low)[0], label) for value, label in plot.x.ticks(6)]
    for x, _ in ticks:
        yield frame.line("grid", (x, _TOP, x, ground))
    for x, label in _apart(ticks):
        yield frame.text(label, x, ground + 16, anchor="middle")
    yield frame.line("axis", (plot.left, ground, right, ground))
    yield frame.text(plot.y.axis.label, 2, 12, kind="label")
    yield frame.text(plot.x.axis.label, right, HEIGHT - 6, anchor="end", kind="label")


def _apart(ticks: Sequence[tuple[float, str]]) -> Sequence[tuple[float, str]]:
    """Return every n-th tick, for the smallest n without overlapping labels."""
    inside = [
        (x, label) for x, label in ticks if frame.widest([label]) / 2 <= x <= frame.WIDTH - frame.widest([label]) / 2
    ]
    for every in range(1, len(inside) + 1):
        chosen = inside[::every]
        pairs = pairwise(chosen)
        if all(right - left >= frame.widest([one, two]) + _GAP for (left, one), (right, two) in pairs):
            return chosen
    return inside[:1]


def _band(mark: LineSeries, index: int, plot: PlotArea) -> Iterator[Markup]:
    if not mark.band:
        return
    low, high = ([plot.at(x, pair[end]) for x, pair in zip(mark.x, mark.band, strict=True)] for end in (0, 1))
    points = " ".join(f"{frame.coordinate(x)},{frame.coordinate(y)}" for x, y in [*high, *reversed(low)])
    yield Markup('<polygon class="band {}" points="{}"/>').format(_color(mark, index), points)


def _line(mark: LineSeries, index: int, plot: PlotArea) -> Iterator[Markup]:
    points = [plot.at(x, y) for x, y in zip(mark.x, mark.y, strict=True)]
    if mark.joined:
        kind = f"line {_color(mark, index)}{' thin' if mark.thin else ''}"
        path = " ".join(f"{frame.coordinate(x)},{frame.coordinate(y)}" for x, y in points)
        yield Markup('<polyline class="{}" points="{}"/>').format(kind, path)
    if mark.markers or not mark.joined or len(points) == 1:
        for (cx, cy), x, y in zip(points, mark.x, mark.y, strict=True):
            yield Markup('<circle class="dot {}" cx="{}" cy="{}" r="2.6"><title>{}, {}</title></circle>').format(
                frame.series(mark.color or index),
                frame.coordinate(cx),
                frame.coordinate(cy),
                plot.x.written(x),
                plot.y.written(y),
            )


def _color(mark: LineSeries | Histogram, index: int) -> str:
    if isinstance(mark, Histogram):
        return frame.series(index)
    return "dashed" if mark.dashed else frame.series(mark.color or index)


def _steps(mark: Histogram, index: int, plot: PlotArea) -> Iterator[Markup]:
    kind = f"bar {frame.series(index)}"
    for low, high, height in zip(mark.edges, mark.edges[1:], mark.heights, strict=False):
        if height > 0:
            (x1, y1), (x2, y2) = plot.at(low, height), plot.at(high, plot.y.low)
            hint = f"{number(low)} – {number(high)}: {number(height)}"
            yield frame.box(kind, (x1, y1, max(x2 - 0.6, x1 + 0.4), y2), hint=hint)
