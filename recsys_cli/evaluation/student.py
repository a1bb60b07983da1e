"""Student's t distribution, for intervals and tests whose standard error is itself an estimate. Plain Python, no scipy."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_STEPS = 300


def two_sided(statistic: float, freedom: float) -> float:
    """Return how often |t| is at least as large by chance.

    Args:
        statistic: The observed t.
        freedom: Degrees of freedom, above 0; infinite for the normal distribution.
    """
    if math.isinf(freedom):
        return math.erfc(abs(statistic) / math.sqrt(2))
    return _incomplete_beta(freedom / (freedom + statistic * statistic), freedom / 2, 0.5)


@lru_cache(maxsize=1_024)
def quantile_975(freedom: float) -> float:
    """Return the t that is exceeded on either side in 5 of 100 cases: 1.96 for many degrees of freedom."""
    low, high = 1.9, 2.0
    while two_sided(high, freedom) > 0.05:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 0.05 else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b) (Press et al., Numerical Recipes, section 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(x, a, b) / a
    return 1 - front * _continued_fraction(1 - x, b, a) / b


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluate Lentz's continued fraction of the incomplete beta function."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return found


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
