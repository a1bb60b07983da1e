"""Scatter plots of labeled points with vertical intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from recsys_cli.page import frame
from recsys_cli.page.bars import short
from recsys_cli.page.chart import HEIGHT, PlotArea, draw_frame
from recsys_cli.page.scale import Axis

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
    plot = PlotArea(across, up, frame.widest(label for _, label in up.ticks(5)) + 10)
    parts = [*draw_frame(plot), *_whiskers(marks, plot), *_dots(marks, plot), *_labels(marks, plot)]
    return frame.figure(title, height=HEIGHT, parts=parts, names=[(frame.series(n), name) for n, name in names])


def _with_margin(values: Sequence[float]) -> list[float]:
    """Return the range of values with a margin on both sides; values from 0 stay from 0."""
    low, high = min(values), max(values)
    margin = _MARGIN * (high - low)
    return [max(low - margin, 0.0) if low >= 0 else low - margin, high + margin]


def _whiskers(marks: Sequence[LabeledPoint], plot: PlotArea) -> Iterator[Markup]:
    for one in marks:
        if one.interval is not None:
            (left, low), (_, high) = (plot.at(one.x, end) for end in one.interval)
            yield frame.line(f"whisker {frame.series(one.color)}", (left, low, left, high))


def _dots(marks: Sequence[LabeledPoint], plot: PlotArea) -> Iterator[Markup]:
    for one in marks:
        left, top = plot.at(one.x, one.y)
        yield Markup('<circle class="dot {}" cx="{}" cy="{}" r="3.2"><title>{}: {}, {}</title></circle>').format(
            frame.series(one.color),
            frame.coordinate(left),
            frame.coordinate(top),
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
        places = list(_places(left, top, frame.widest([short(one.label)])))
        places = [box for box in places if box[0] >= plot.left and box[2] <= frame.WIDTH] or places
        legible = [box for box in places if not _hits(box, taken)] or places
        chosen = next((box for box in legible if not _hits(box, whiskers)), legible[0])
        taken.append(chosen)
        yield frame.text(short(one.label), chosen[0], chosen[3] - 2)


def _places(left: float, top: float, width: float) -> Iterator[Box]:
    half = _LETTER_HEIGHT / 2
    for rows in (0, -1, 1, -2, 2, -3, 3, -4, 4):
        middle = top + rows * _LETTER_HEIGHT
        for start in (left + _NEAR, left - _NEAR - width):
            yield start, middle - half, start + width, middle + half


def _hits(one: Box, others: Sequence[Box]) -> bool:
    """Whether a box overlaps any of the others."""
    return any(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3] for other in others)
