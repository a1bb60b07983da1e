"""Inference that is valid at any look: the ratio of hits of two traffic shares, and changes of daily figures.

An e-value above 1 / level is an alarm. Its chance at *any* look is at most the level (Ville's inequality), so a look a day
needs no correction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import Floats
from recsys_cli.packages import special

LEVEL = 0.05
"""Chance of a false alarm at any look."""
_EFFECT = 0.25  # standard deviation of the log ratios that the e-value bets on
_FEWEST = 10.0  # expected users with a hit in the smaller arm; with less the asymptotics fail
_RATIOS = np.exp(np.linspace(-6, 6, 4001))


@dataclass(frozen=True)
class Hits:
    """Hits of an arm: its share of all users, users with a hit, hits, and the sum over users of their hits squared."""

    share: float
    users: int
    total: float
    squares: float

    @property
    def at_full_traffic(self) -> float:
        """Estimated hits with all users in this arm (Horvitz and Thompson, 1952)."""
        return self.total / self.share


def ratio_of_hits(arm: Hits, other: Hits, *, level: float = LEVEL) -> tuple[float, float, float] | None:
    """Return the ratio of hits per assigned user, and its interval at any look; None with too few users.

    The share of each arm is known, so the number of users without a hit is not needed. The interval holds the ratios
    with an e-value below 1 / level: the normal mixture of Robbins (1970; Howard, Ramdas, McAuliffe and Sekhon, 2021) in its
    asymptotic form (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2024). The variance is that under the
    ratio in question, with users as units: the rate of hits pooled, the hits per user of each arm its own. With a
    variance of the arm's own few hits alone, shares of 10 and 2 % had 10 to 60 % false alarms, here at most 2 %.
    """
    small = min(arm.share, other.share) / (arm.share + other.share)
    if (arm.users + other.users) * small < _FEWEST or not other.total:
        return None
    ratio = arm.at_full_traffic / other.at_full_traffic
    inside = [*_RATIOS[_evidence_against(_RATIOS, arm, other) < -math.log(level)].tolist(), ratio]
    return ratio, min(inside) if arm.total else 0.0, max(inside)


def _evidence_against(ratio: Floats, arm: Hits, other: Hits) -> Floats:
    """Return the logarithms of e-values against ratios of hits (R,)."""
    pooled = (arm.squares + other.squares) / (arm.total + other.total)
    per_hit = [max(pooled, one.squares / one.total) if one.total else pooled for one in (arm, other)]
    rate = (arm.total + other.total) / (ratio * arm.share + other.share)
    variance = rate * (ratio * per_hit[0] / arm.share + ratio**2 * per_hit[1] / other.share)
    here, there = arm.at_full_traffic, ratio * other.at_full_traffic
    error, bet = variance / ((here + there) / 2) ** 2, _EFFECT**2
    shrunk = (here - there) ** 2 / variance * bet / (error + bet)
    return np.asarray((np.log(error / (error + bet)) + shrunk) / 2)


WARM_UP = 28
"""Days before the first bet."""
_WEEK = 7  # days of the rhythm
_DAYS = 7  # of a bet: slower drifts are no alarm, nor are slow trends and dependent days
_SPREAD = 100.0  # s: day k has the share s / ((k + s - 1) (k + s)) of the stakes, which add up to 1
_UNFITTED = 2  # latest days that no fit has, so that the first days of a shift do not make it usual
_SHIFT = 4.0  # variance of the shifts that a bet is on


@dataclass(frozen=True)
class Change:
    """A change of a daily figure: the day on which it began by the largest bet, and the day of the alarm, both from 0."""

    first: int
    found: int


def changes_of(values: Sequence[float | None], *, level: float = LEVEL, least: float = 0.0) -> list[Change]:
    """Return all changes; after each one the search starts anew with its first day, and needs `WARM_UP` days again.

    Without any change the chance of one is at most the level, however often somebody looks. For several figures,
    divide the level by their number.

    Args:
        values: One figure a day, without gaps in the calendar; None for a day without a figure. Give log(1 + count), and
            logits of shares.
        level: Chance of a false alarm.
        least: Smallest standard error of a prediction: smaller changes than a few of it are of no interest.
    """
    changes, start = list[Change](), 0
    while True:
        evidence, firsts = _evidence(values[start:], 1 / level, least)
        alarms = np.flatnonzero(evidence >= 1 / level)
        if not len(alarms):
            return changes
        changes.append(Change(start + int(firsts[alarms[0]]), start + int(alarms[0])))
        start = changes[-1].first


def _evidence(values: Sequence[float | None], enough: float, least: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the e-value against "no change" after each day (T,), 1 before the first bet, and the day of its largest bet (T,).

    Each day is predicted from the days before, by least squares on the weekday, a trend and yesterday's value; its
    surprise is a normal score (recursive residuals of Brown, Durbin and Evans, 1975). On each day a small stake is bet on a
    shift that begins then: Robbins' normal mixture over its size, mixed over the days it may begin (Lorden, 1971; Shin,
    Ramdas and Rinaldo, 2024), and settled after 7 days. A surprise counts so much that two days alone are half of `enough`.
    """
    most = math.sqrt((1 + 2 * _SHIFT) / (2 * _SHIFT) * math.log(1.5 * enough * (_SPREAD + 1)))
    days = np.array([math.nan if one is None else one for one in values], float)
    surprises = _surprises(days, most, least)
    sums, evidence = np.concatenate(([0.0], np.cumsum(surprises))), np.ones(len(surprises))
    firsts = np.zeros(len(surprises), np.int64)
    for day in range(WARM_UP, len(surprises)):
        first = np.arange(WARM_UP, day + 1)
        length = np.minimum(day + 1 - first, _DAYS)
        moved = sums[first + length] - sums[first]
        wealth = np.exp(_SHIFT * moved**2 / (2 * (1 + length * _SHIFT))) / np.sqrt(1 + length * _SHIFT)
        number = first - WARM_UP + 1 + _SPREAD
        stakes = _SPREAD / ((number - 1) * number)
        evidence[day] = stakes @ wealth + _SPREAD / number[-1]
        firsts[day] = first[np.argmax(stakes * wealth)]
    return evidence, firsts


def _surprises(values: Floats, most: float, least: float) -> Floats:
    """Return the normal score of each day given the days before (T,), up to `most`; 0 without a figure or days before."""
    known, surprises = np.isfinite(values), np.zeros(len(values))
    if not known.any():
        return surprises
    early = values[known][:WARM_UP]
    scale = max(float(early.std()), 1e-9 * max(1.0, float(np.abs(early).max())))
    values = (values - early.mean()) / scale
    days = np.arange(len(values))
    design = np.column_stack([np.eye(_WEEK)[days % _WEEK], days / 100, np.zeros(len(values))])
    for day in days[1:]:
        design[day, -1] = values[day - 1] if known[day - 1] else design[day - 1, -1]
        past = np.flatnonzero(known[: day - _UNFITTED])
        if day < WARM_UP or not known[day] or len(past) < 2 * _WEEK:
            continue
        expected, error, freedom = _predicted(design[past], values[past], design[day])
        error = max(error, least / scale, 1e-6)
        distance = (values[day] - expected) / error
        score = -float(special.ndtri(max(special.stdtr(freedom, -abs(distance)), 1e-300)))
        surprises[day] = math.copysign(min(score, most), distance)
        values[day] = expected + float(np.clip(distance, -most - 1, most + 1)) * error
    return surprises


def _predicted(design: Floats, values: Floats, row: npt.NDArray[Any]) -> tuple[float, float, float]:
    """Return the prediction of a row by least squares, its standard error, and its degrees of freedom.

    The error of a line at its end, 4 / rows, is in the surprises of the days around as well, since their fits lack
    the same days; it counts once for each of them.
    """
    sizes, axes = np.linalg.eigh(design.T @ design)
    kept = sizes > 1e-10 * sizes[-1]
    inverse = (axes[:, kept] / sizes[kept]) @ axes[:, kept].T
    found = inverse @ (design.T @ values)
    freedom = len(values) - int(kept.sum())
    variance = float(((values - design @ found) ** 2).sum()) / freedom
    of_fit = float(row @ inverse @ row) + 2 * _UNFITTED * 4 / len(values)
    return float(row @ found), math.sqrt(variance * (1 + of_fit)), float(freedom)
