"""Student's t against scipy."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm, t

from recsys_cli.evaluation.student import quantile_975, two_sided


@pytest.mark.parametrize("freedom", [1, 1.3, 2, 4.7, 30, 2_000, 1e6])
def test_t_is_that_of_scipy(freedom: float) -> None:
    assert quantile_975(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-9)
    for statistic in (0.0, 0.3, 1.96, 5.0, 40.0):
        assert two_sided(-statistic, freedom) == pytest.approx(2 * t.sf(statistic, freedom), rel=1e-8, abs=1e-300)


def test_of_many_degrees_of_freedom_it_is_the_normal_distribution() -> None:
    assert quantile_975(math.inf) == pytest.approx(norm.ppf(0.975))
    assert two_sided(3.0, math.inf) == pytest.approx(2 * norm.sf(3.0))
