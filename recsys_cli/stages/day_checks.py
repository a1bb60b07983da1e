"""Checks of new interactions against the days before: what makes `recsys update` refuse a day before any training."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from recsys_cli.etl.calendar import DAY, WEEK, Day, added, moments
from recsys_cli.etl.days import NewInteractions

_WEEKS = 3
"""Fewest same weekdays to compare with; with fewer, all days."""
_FEWEST = 5
"""Fewest days to compare with."""
_LATEST = 4
"""Latest same weekdays whose rows are expected, with their growth."""
_SURE = 4.0
"""Standard deviations by weeks below which a median change is no growth: two standard errors of a median of differences."""
_NARROW, _WIDE, _SIGMAS, _NOISE = 0.35, 0.5, 4.0, 3.0
"""Accepted logarithm of the ratio to the expected rows: from 1.42 to 1.65 times, by the spread of the days."""
_NEW, _SHARE, _MEAN, _GAP = 0.95, 0.1, 0.5, 3.0
_SCARCE = 20
"""Rows from which on shares of a day say something."""


@dataclass(frozen=True)
class Problem:
    """A check that a day fails; `--accept CHECK` overrides it."""

    check: str
    text: str


def problems(new: NewInteractions, before: Sequence[Day], *, through: float, now: float) -> list[Problem]:
    """Return the failed checks of new rows, each with its numbers; `through` is the time of the last row so far.

    Rows, shares and means are compared with the same number of days before, on the same weekday where three or more exist.
    """
    if not new.rows:
        return [Problem("rows", "the new files have no rows")]
    if new.late == new.rows:
        return [Problem("late", f"all {new.rows:,} rows are at or before {_when(through)}, the last time so far")]
    if found := [*_of_times(new, before, through, now)]:  # other figures of a wrong time are wrong as well
        return found
    span = max(1, new.days[-1].day - (before[-1].day if before else new.days[0].day - 1))
    past, by_weekday = windows(before, span, weekday=new.days[-1].day % WEEK)
    return [*_of_late(new), *_of_window(added(new.days), past, by_weekday=by_weekday)]


def windows(days: Sequence[Day], span: int, *, weekday: int) -> tuple[list[Day], bool]:
    """Return sums over `span` days each, of windows that end on a weekday; False: of all, because those are too few."""
    if not days:
        return [], False
    by_day = {day.day: day for day in days}
    first, last = days[0].day, days[-1].day
    ends = range(first + span - 1, last + 1)
    all_windows = [added([by_day[d] for d in range(end - span + 1, end + 1) if d in by_day]) for end in ends]
    same = [one for end, one in zip(ends, all_windows, strict=True) if end % WEEK == weekday and one.rows]
    return (same, True) if len(same) >= _WEEKS else ([one for one in all_windows if one.rows], False)


def _of_times(new: NewInteractions, before: Sequence[Day], through: float, now: float) -> Iterator[Problem]:
    last = new.last if new.last is not None else through
    gaps = [later.day - earlier.day for earlier, later in itertools.pairwise(before)]
    most = _GAP * max([*gaps, WEEK]) * DAY
    if last > now + DAY:
        yield Problem("time", f"the last row is of {_when(last)}, in the future")
    elif last > through + most:
        yield Problem("time", f"the last row is of {_when(last)}, and the last one before of {_when(through)}")


def _of_late(new: NewInteractions) -> Iterator[Problem]:
    if new.late > new.rows / 2:
        yield Problem("late", f"{new.late:,} of {new.rows:,} rows are before the last time so far")


def _of_window(day: Day, past: Sequence[Day], *, by_weekday: bool) -> Iterator[Problem]:
    if by_weekday or len(past) >= _FEWEST:
        yield from _of_rows(day, past, by_weekday=by_weekday)
    if day.rows < _SCARCE:
        return
    for role, number in day.unknown.items():
        shares = [
            one.unknown[role] / one.rows for one in past if one.unknown.get(role, one.rows) < one.rows
        ]  # no first day
        usual = max(shares, default=0.0)
        most = min(max(_NEW, (1 + usual) / 2), 1.5 * usual + _SHARE) if len(shares) >= _WEEKS else _NEW
        if number / day.rows > most:
            yield Problem(
                f"unknown {role}s", f"{number / day.rows:.0%} of the rows have a new {role}; up to {most:.0%} is usual"
            )
    if not past:
        return
    for name, number in day.nulls.items():
        most = 2 * max(one.nulls.get(name, 0) / one.rows for one in past) + _SHARE / 2
        if number / day.rows > most:
            yield Problem(f"nulls of {name}", f"{number / day.rows:.0%} of {name} is empty; up to {most:.0%} is usual")
    most = 2 * max(one.most / one.rows for one in past) + _SHARE
    if day.most / day.rows > most:
        yield Problem("one user", f"one user has {day.most / day.rows:.0%} of the rows; up to {most:.0%} is usual")
    for name in day.sums:
        yield from _of_number(name, day, [one for one in past if name in one.sums and one.sums[name][0]])


def _of_rows(day: Day, past: Sequence[Day], *, by_weekday: bool) -> Iterator[Problem]:
    logs = [math.log(one.rows) for one in past]
    expected, spread = statistics.median(logs), _spread(logs)
    if by_weekday:
        changes = [later - earlier for earlier, later in itertools.pairwise(logs)]
        spread, growth = _spread(changes) / math.sqrt(2), statistics.median(changes)
        if abs(growth) < _SURE * spread / math.sqrt(len(changes)):
            growth = 0.0
        expected = statistics.median(logs[-_LATEST:]) + growth * (_LATEST + 1) / 2
    noise = _NOISE / math.sqrt(math.exp(expected))  # of counts
    reach = min(_WIDE, max(_NARROW, _SIGMAS * spread)) + noise
    low, high = expected - reach, expected + reach
    if not by_weekday:  # the fewest of a week may be a weekday's
        low, high = min(low, min(logs) - _NARROW - noise), max(high, max(logs) + _NARROW + noise)
    if not low <= math.log(day.rows) <= high:
        low, high = math.exp(low), math.exp(high)
        yield Problem("rows", f"{day.rows:,} rows, where {low:,.0f} to {high:,.0f} are usual")


def _of_number(name: str, day: Day, past: Sequence[Day]) -> Iterator[Problem]:
    if not past or not day.sums[name][0]:
        return
    mean, deviation = moments(day.sums[name])
    means, deviations = zip(*(moments(one.sums[name]) for one in past), strict=True)
    usual, middle = statistics.median(deviations), statistics.median(means)
    reach = _MEAN * usual + _SIGMAS * (_spread(means) + usual / math.sqrt(day.sums[name][0])) + 1e-9 * abs(middle)
    if abs(mean - middle) > reach:
        text = f"the mean of {name} is {mean:.4g}, where {middle - reach:.4g} to {middle + reach:.4g} is usual"
        yield Problem(f"values of {name}", text)
    elif usual > 0 and min(deviations) > 0 and deviation == 0:
        yield Problem(
            f"values of {name}", f"{name} is {mean:.4g} in all rows, where its deviation is {usual:.3g} otherwise"
        )


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation by the median absolute deviation."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def _when(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.4g} s since 1970"
