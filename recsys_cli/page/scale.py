"""Axes of linear, logarithmic, date and categorical values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

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
