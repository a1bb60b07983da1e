"""Where a value stands on an axis, and which values are written beside it: plain, logarithmic, or as dates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

Tick = tuple[float, str]

_FIRST_DATE, _LAST_DATE = 10**8, 10**11
_DAY = 86_400


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    Attributes:
        label: What it shows, with its unit.
        kind: How values are laid out; `share` writes 0.5 as 50 %, `time` takes seconds since 1970, `names` counts from 0.
        low: Where it begins; None for the least value.
        high: Where it ends; None for the greatest value.
        names: What to write instead of 0, 1, 2 and so on, where that is its kind.
    """

    label: str
    kind: Literal["linear", "share", "log", "time", "names"] = "linear"
    low: float | None = None
    high: float | None = None
    names: Sequence[str] = ()

    def over(self, values: Iterable[float]) -> AxisScale:
        """Return the scale for some values."""
        if self.kind == "names":
            return AxisScale(self, -0.5, len(self.names) - 0.5)
        known = [value for value in values if self.kind != "log" or value > 0]
        low = self.low if self.low is not None else min(known, default=1.0)
        high = self.high if self.high is not None else max(known, default=low)
        if high <= low:  # one value: it stands in the middle
            low, high = (low / 2, low * 2) if self.kind == "log" else (low - 0.5, low + 0.5)
        return AxisScale(self, low, high)


@dataclass(frozen=True)
class AxisScale:
    """An axis with its ends.

    Attributes:
        axis: What it is.
        low: The value at its beginning.
        high: The value at its end.
    """

    axis: Axis
    low: float
    high: float

    def __call__(self, value: float) -> float:
        """Return where a value stands, from 0 to 1."""
        place = self._place(value, self.low, self.high)
        return min(1.0, max(0.0, place))

    def _place(self, value: float, low: float, high: float) -> float:
        if self.axis.kind == "log":
            return math.log(max(value, low) / low) / math.log(high / low)
        return (value - low) / (high - low)

    def ticks(self, about: int) -> list[Tick]:
        """Return values to write beside it, about so many, with their text."""
        match self.axis.kind:
            case "log":
                return [(value, number(value)) for value in _decades(self.low, self.high, about)]
            case "names":
                return [(float(place), name) for place, name in enumerate(self.axis.names)]
            case "time":
                return list(_dates(self.low, self.high, about))
            case "share":
                return [(value, f"{100 * value:.6g} %") for value in _round_values(self.low, self.high, about)]
        return [(value, number(value)) for value in _round_values(self.low, self.high, about)]

    def written(self, value: float) -> str:
        """Return a value as a hint at a point says it."""
        return self.axis.names[round(value)] if self.axis.kind == "names" else number(value)


def number(value: float) -> str:
    """Write a number as short as an axis needs it: 1500 as 1.5k."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.6g}{suffix}"
    return f"{value:.6g}"


def share(part: float, whole: float) -> str:
    """Write a share; what is there but tiny is not called nothing, and what is missing a little is not called all."""
    found = part / whole if whole else 0.0
    if 1e-9 < found < 0.0005:
        return "<0.1 %"
    if 0.9995 <= found < 1 - 1e-9:
        return ">99.9 %"
    return f"{100 * found:.1f} %" if found > 1e-9 else "0"


def is_date(low: float, high: float) -> bool:
    """Whether times are seconds since 1970, as far as one can tell: years 1973 to 5138."""
    return _FIRST_DATE <= low <= high < _LAST_DATE


def moment(seconds: float) -> str:
    """Write a time in UTC, or the plain number where it is no date."""
    if not is_date(seconds, seconds):
        return f"{seconds:,.0f}" if float(seconds).is_integer() else f"{seconds:,.6g}"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def day(seconds: float) -> str:
    """Write the day of a time in UTC, or the plain number where it is no date."""
    return moment(seconds).partition(" ")[0]


def _round_values(low: float, high: float, about: int) -> list[float]:
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def _decades(low: float, high: float, about: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, round((last - first) / about))
    found = [10.0**power for power in range(first, last + 1, every)]
    if last - first <= 2:
        found = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]


def _dates(low: float, high: float, about: int) -> Iterator[Tick]:
    span = high - low
    if span > 2 * 365 * _DAY:
        first, last = (1970 + end / (365.25 * _DAY) for end in (low, high))
        years = [year for year in _round_values(first, last, about) if year == int(year)]
        dates = [(datetime(int(year), 1, 1, tzinfo=UTC), f"{int(year)}") for year in years]
    elif span > 60 * _DAY:
        dates = [(first, f"{first:%Y-%m}") for first in _months(low, every=max(1, round(span / (30 * _DAY) / about)))]
    else:
        dates = list(_clock(low, span / about))
    for date, text in dates:
        if low <= date.timestamp() <= high:
            yield date.timestamp(), text


def _months(low: float, *, every: int) -> Iterator[datetime]:
    begin = datetime.fromtimestamp(low, UTC)
    for month in range(0, 26, every):
        years, rest = divmod(begin.month - 1 + month, 12)
        yield datetime(begin.year + years, rest + 1, 1, tzinfo=UTC)


def _clock(low: float, rough: float) -> Iterator[tuple[datetime, str]]:
    """Yield days, hours, minutes or seconds from the last midnight on."""
    steps = [1, 5, 15, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY]
    step = next((step for step in steps if step >= rough), steps[-1])
    form = "%m-%d" if step >= _DAY else "%H:%M" if step >= 60 else "%H:%M:%S"
    begin = datetime.fromtimestamp(low - low % max(step, 1), UTC)
    for place in range(62 * 2):
        date = begin + timedelta(seconds=place * step)
        yield date, f"{date:{form}}"
