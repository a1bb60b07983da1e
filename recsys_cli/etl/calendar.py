"""Sums over the interactions of a calendar day, and of several days; without dataframes, as `recsys watch` starts at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DAY = 86_400
WEEK = 7
KEPT = 70
"""Latest days that a day is compared with: ten weeks."""
WATCHED = 365 + KEPT
"""Days after which all but the latest ones are forgotten, and `recsys watch` starts anew."""


@dataclass(frozen=True)
class Day:
    """Sums over the interactions of one day, or of several.

    Attributes:
        day: Days since 1970 of the last one.
        rows: Number of rows.
        last: Time of the last row, in seconds since 1970.
        unknown: Rows with a new value, by role: `user` and `item`; empty without a vocabulary to compare with.
        most: Rows of the most active user.
        nulls: Nulls by column.
        sums: Number of values, their sum and their sum of squares, by numeric column.
    """

    day: int
    rows: int
    last: float
    most: int
    unknown: Mapping[str, int] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, tuple[int, float, float]] = field(default_factory=dict)


def added(days: Sequence[Day]) -> Day:
    """Return the sum of days."""
    if not days:
        return Day(0, 0, 0.0, 0)
    totals: dict[str, dict[str, int]] = {"unknown": {}, "nulls": {}}
    sums: dict[str, tuple[int, float, float]] = {}
    for day in days:
        for kind, mapping in (("unknown", day.unknown), ("nulls", day.nulls)):
            for name, number in mapping.items():
                totals[kind][name] = totals[kind].get(name, 0) + number
        for name, (count, total, squares) in day.sums.items():
            old = sums.get(name, (0, 0.0, 0.0))
            sums[name] = (old[0] + count, old[1] + total, old[2] + squares)
    return Day(
        days[-1].day, sum(d.rows for d in days), max(d.last for d in days), max(d.most for d in days), totals["unknown"],
        totals["nulls"], sums,
    )  # fmt: skip


def kept(days: Sequence[Day]) -> list[Day]:
    """Return the latest days."""
    return [day for day in days if day.day > days[-1].day - KEPT]


def moments(sums: tuple[int, float, float]) -> tuple[float, float]:
    """Return mean and deviation of one value or more, by their number, sum and sum of squares; no deviation by rounding."""
    count, total, squares = sums
    mean = total / count
    variance = max(0.0, squares / count - mean**2)
    return mean, math.sqrt(variance) if variance > 1e-12 * (squares / count) else 0.0
