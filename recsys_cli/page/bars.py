"""Bar charts and interval plots of named categories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from recsys_cli.page import frame
from recsys_cli.page.scale import Axis, AxisScale

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
    left = frame.widest(short(name) for name in names) + 10
    height = _TOP + _BOTTOM + len(names) * (len(groups) * _BAR + _GAP)
    parts = [*_frame(scale, left, height), *_rows(names, groups, scale, left)]
    legend = [(frame.series(index), group.name) for index, group in enumerate(groups, start=1)]
    return frame.figure(title, height=height, parts=parts, names=legend)


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
    left = frame.widest(short(one.name) for one in estimates) + 10
    height = _TOP + _BOTTOM + len(estimates) * (_BAR + _GAP)
    parts = [*_frame(scale, left, height)]
    if scale.low <= 0 <= scale.high:
        zero = _across(scale, left, 0.0)
        parts.append(frame.line("axis", (zero, _TOP, zero, height - _BOTTOM)))
    for row, one in enumerate(estimates):
        parts += _interval(one, scale, left, _TOP + (row + 0.5) * (_BAR + _GAP))
    return frame.figure(title, height=height, parts=parts, names=[(frame.series(n), name) for n, name in names])


def _interval(one: IntervalBar, scale: AxisScale, left: float, y: float) -> Iterator[Markup]:
    low, middle, high = (_across(scale, left, value) for value in (one.low, one.value, one.high))
    yield frame.text(short(one.name), left - 6, y + 4, anchor="end")
    yield frame.line(f"whisker {frame.series(one.color)}", (low, y, high, y))
    yield Markup(
        '<circle class="dot {}" cx="{}" cy="{}" r="3.2"><title>{}: {:.4g}, {:.4g} to {:.4g}</title></circle>'
    ).format(
        frame.series(one.color), frame.coordinate(middle), frame.coordinate(y), one.name, one.value, one.low, one.high
    )


def _across(scale: AxisScale, left: float, value: float) -> float:
    return left + scale(value) * (frame.WIDTH - _RIGHT - left)


def _frame(scale: AxisScale, left: float, height: float) -> Iterator[Markup]:
    ground = height - _BOTTOM
    for value, label in scale.ticks(5):
        x = _across(scale, left, value)
        yield frame.line("grid", (x, _TOP, x, ground))
        yield frame.text(label, x, ground + 16, anchor="middle")
    yield frame.text(scale.axis.label, frame.WIDTH - _RIGHT, height - 6, anchor="end", kind="label")


def _rows(names: Sequence[str], groups: Sequence[BarGroup], scale: AxisScale, left: float) -> Iterator[Markup]:
    each = len(groups) * _BAR + _GAP
    for row, name in enumerate(names):
        top = _TOP + row * each + _GAP / 2
        yield frame.text(short(name), left - 6, top + len(groups) * _BAR / 2 + 4, anchor="end")
        for index, group in enumerate(groups):
            value = group.values[row]
            if value is None:
                continue
            y = top + index * _BAR
            ends = (left, y, _across(scale, left, value), y + _BAR - 1.5)
            yield frame.box(f"bar {frame.series(index + 1)}", ends, hint=f"{name}, {group.name}: {value:.4g}")
            interval = group.intervals[row] if group.intervals else None
            if interval is not None:
                low, high = (_across(scale, left, end) for end in interval)
                yield frame.line("whisker", (low, y + _BAR / 2 - 0.75, high, y + _BAR / 2 - 0.75))


def short(name: str) -> str:
    """Return a name, cut if it is long."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
