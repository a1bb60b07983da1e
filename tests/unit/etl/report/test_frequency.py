"""Heads and growth: small counts by hand, random counts by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.etl.report.queries import frequency, growth


def test_head_is_the_share_of_the_most_frequent() -> None:
    counts = np.ones(1_000, dtype=np.int64)
    counts[500:510] = 100
    found = frequency(counts)
    assert found is not None
    assert found.head == {"0.01": pytest.approx(1000 / 1990), "0.1": pytest.approx(1090 / 1990)}
    assert (found.distinct, found.rows, found.once, found.median, found.most) == (1_000, 1_990, 990, 1, 100)


def test_values_with_count_zero_are_ignored() -> None:
    assert frequency(np.zeros(5, dtype=np.int64)) is None
    assert growth(np.zeros(0, dtype=np.int64), 7) is None


def test_growth_is_the_mean_over_orders() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([40, 20, 10, 5, 2, 1, 1, 1])
    rows = np.repeat(np.arange(len(counts)), counts)
    found = growth(counts, len(rows))
    assert found is not None
    orders = [rng.permutation(rows) for _ in range(400)]
    for place in (10, 20, 30):
        tried = np.mean([len(set(order[: found.rows[place]])) for order in orders])
        assert found.values[place] == pytest.approx(tried, abs=0.35)
    assert found.values == tuple(sorted(found.values))
