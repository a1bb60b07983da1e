"""Inference at any look, against simulations: 20 seeds, each looked at 200 times."""

from collections.abc import Iterator

import numpy as np
import pytest

from recsys_cli.evaluation.sequential import WARM_UP, Change, Hits, changes_of, ratio_of_hits

SEEDS, LOOKS = range(20), 200


def looks(
    seed: int, share: float, ratio: float, *, users: int = 2_000, rate: float = 0.002
) -> Iterator[tuple[Hits, Hits]]:
    """Yield the hits of both arms after each day; users differ in their rate, and none is counted twice."""
    rng = np.random.default_rng(seed)
    is_arm = rng.random(users) < share
    rates = rate * rng.gamma(0.5, 2, users) * np.where(is_arm, ratio, 1)
    hits = np.zeros(users)
    for _ in range(LOOKS):
        hits += rng.poisson(rates)
        yield tuple(
            Hits(part, int((own > 0).sum()), own.sum(), (own**2).sum())
            for part, own in ((share, hits[is_arm]), (1 - share, hits[~is_arm]))
        )


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_equal_arms_have_no_verdict_at_any_look(share: float) -> None:
    """The interval of a single look, 1.96 standard errors, excludes equal arms at some look of every fourth of such seeds."""
    excluded = 0
    for seed in SEEDS:
        found = [one for arms in list(looks(seed, share, 1.0))[::5] if (one := ratio_of_hits(*arms))]
        excluded += any(not low <= 1 <= high for _, low, high in found)
        assert all(low <= ratio <= high for ratio, low, high in found)
    assert excluded <= 1


@pytest.mark.parametrize(("share", "ratio", "days"), [(0.5, 2.0, 50), (0.5, 0.5, 100), (0.2, 2.0, 130)])
def test_a_better_arm_is_found_and_the_truth_is_inside(share: float, ratio: float, days: int) -> None:
    delays, missed = [], 0
    for seed in SEEDS:
        found = [ratio_of_hits(*arms) for arms in list(looks(seed, share, ratio))[::5]]
        outside = [day for day, one in enumerate(found) if one and not one[1] <= 1 <= one[2]]
        delays.append(5 * outside[0] if outside else LOOKS)
        missed += any(one and not one[1] <= ratio <= one[2] for one in found)
    assert np.median(delays) < days
    assert missed <= 1


def test_few_users_have_no_interval_and_an_arm_without_hits_has_one_from_zero() -> None:
    assert ratio_of_hits(Hits(0.1, 9, 9, 9), Hits(0.9, 90, 90, 90)) is None
    ratio, low, high = ratio_of_hits(Hits(0.5, 0, 0, 0), Hits(0.5, 200, 250, 400)) or (1, 1, 1)
    assert (ratio, low) == (0, 0)
    assert 0 < high < 1


def figures(seed: int, kind: str) -> np.ndarray:
    """Return daily figures with a weekly rhythm: logarithms of rows that grow, logits of a share, or dependent scores."""
    rng, days = np.random.default_rng(seed), np.arange(WARM_UP + LOOKS)
    week = np.array([0, 0.05, 0, 0.1, 0.3, 0.5, 0.2])[days % 7] * rng.uniform(0.3, 1.5)
    if kind == "rows":
        return np.log(rng.poisson(2_000 * np.exp(week + 0.002 * days) * rng.gamma(100, 1 / 100, len(days))))
    if kind == "unknown":
        unknown = rng.binomial(2_000, 0.03 * rng.gamma(50, 1 / 50, len(days))) + 0.5
        return np.log(unknown / (2_001 - unknown))
    noise = rng.standard_t(4, len(days)) * 0.1
    return week + np.convolve(noise, 0.4 ** np.arange(10))[: len(days)]


@pytest.mark.parametrize("kind", ["rows", "unknown", "scores"])
def test_a_rhythm_growth_and_noise_are_no_change_and_a_shift_is_found_in_three_days(kind: str) -> None:
    alarms = [changes_of(figures(seed, kind)) for seed in SEEDS]
    assert sum(one != [] for one in alarms) <= 1
    delays = []
    for seed in range(10):
        values = figures(seed, kind)[:90]
        spread = np.std(values[7:] - values[:-7]) / 2**0.5
        values[80:] += (8 if seed % 2 else -8) * spread
        assert not any(one.first >= 79 for one in changes_of(values[:82])), "two days alone"
        [change] = changes_of(values, level=0.05 / 20)
        assert abs(change.first - 80) <= 1
        delays.append(change.found - 80)
    assert (np.median(delays), max(delays) <= 3) == (2, True)


def test_days_without_a_figure_and_constant_figures() -> None:
    values = [*np.full(40, 0.25), *np.full(5, 0.26)]
    assert changes_of(values[:40]) == []
    assert changes_of(values) == [Change(40, 42)]
    assert changes_of(values, least=0.02) == []
    assert changes_of([None if day % 9 == 0 else one for day, one in enumerate(figures(0, "rows"))]) == []
    assert changes_of([None] * 30) == changes_of([]) == []
    assert changes_of([*[None] * 50, *values]) == [Change(90, 92)]
    assert changes_of(figures(1, "rows")[: WARM_UP + 2] + np.eye(WARM_UP + 2)[-1] * 100) == []


def test_the_search_goes_on_after_a_change() -> None:
    """A change back after a month is another one; one after a week is not, as the new level has too few days."""
    values = figures(3, "rows")
    values[80:110] -= 3
    first, second = changes_of(values)
    assert (first.first, second.first) == (80, 110)
    values[87:110] += 3
    assert [one.first for one in changes_of(values)] == [80]
