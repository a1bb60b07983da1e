"""Noise in, nothing significant out: how often intervals hold the truth and tests find what is not there, on simulated users.

Rows of a user share what is particular about the user, so they are not independent; some users have many times the rows of others.
Limits follow from the binomial error of the number of worlds: three standard errors to either side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from recsys_cli.evaluation.compare.outcomes import Outcomes, by_means
from recsys_cli.evaluation.intervals import (
    Clusters,
    ScoredRows,
    Spread,
    by_owner,
    mean_estimates,
    pointwise_estimates,
    weighted_estimate,
)
from recsys_cli.metrics import GROUPED, POINTWISE
from recsys_cli.metrics.labels import row_losses, row_placements

WORLDS = 500
LIMIT = 3 * math.sqrt(0.05 * 0.95 / WORLDS)
SIGNAL, OF_USER = 1.0, 0.7
NOISE = math.sqrt(1 - OF_USER**2)


def users(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Give the encoded user of each row: 120 with 8 rows each, or with 2 to 100 rows, or rows without any user."""
    if kind == "no users":
        return np.full(600, 2)
    sizes = (
        np.full(120, 8) if kind == "equal users" else np.minimum(2 + rng.geometric(0.12, 120) ** 1.3, 100).astype(int)
    )
    return 3 + np.repeat(np.arange(120), sizes)


def scores(rng: np.random.Generator, user: np.ndarray, labels: np.ndarray, *, signal: float = SIGNAL) -> np.ndarray:
    """Give scores with an error of their own about each user; rows without a user have one each."""
    about = rng.normal(size=int(user.max()) + 1)[user] if user.max() > 2 else rng.normal(size=len(user))
    return signal * labels + OF_USER * about + NOISE * rng.normal(size=len(user))


def truth(name: str) -> float:
    """Compute the figure of infinitely many users."""
    if name == "auc":
        return float(norm.cdf(SIGNAL / math.sqrt(2)))
    if name == "gauc":
        return float(norm.cdf(SIGNAL / math.sqrt(2) / NOISE))
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    both = (np.logaddexp(0, points) + np.logaddexp(0, -SIGNAL - points)) / 2  # labels are 1 for half of the rows
    return float(both @ weights / weights.sum())


@pytest.mark.parametrize("kind", ["equal users", "unequal users", "no users"])
def test_intervals_of_rows_hold_the_truth_in_95_of_100_worlds(kind: str) -> None:
    names = ("auc", "log_loss") if kind == "no users" else ("auc", "log_loss", "gauc")
    held = dict.fromkeys(names, 0)
    for world in range(WORLDS):
        rng = np.random.default_rng(world)
        user = users(rng, kind)
        labels = (rng.random(len(user)) < 0.5).astype(np.float32)
        scored = scores(rng, user, labels)
        metrics = {name: POINTWISE[name] for name in names if name != "gauc"}
        rows = ScoredRows.of(labels, scored, Clusters.of_users(user))
        found = pointwise_estimates(rows, metrics, resamples=10, seed=0)
        if "gauc" in names:
            found["gauc"] = weighted_estimate(*GROUPED["gauc"].compute(user, labels, scored))
        for name in names:
            held[name] += found[name].low <= truth(name) <= found[name].high
    for name, times in held.items():
        assert abs(times / WORLDS - 0.95) <= LIMIT, f"{name}: {times} of {WORLDS}"


@pytest.mark.parametrize("number", [30, 150])
def test_intervals_of_rankings_hold_the_truth_in_95_of_100_worlds(number: int) -> None:
    """Half of the users find what they should, at one of ten places."""
    gains = 1 / np.log2(np.arange(2, 12))
    held = 0
    for world in range(WORLDS):
        rng = np.random.default_rng(world)
        values = (rng.random(number) < 0.5) * gains[rng.integers(0, 10, number)]
        (found,) = mean_estimates(values[:, None], resamples=300, seed=world)
        held += found.low <= gains.mean() / 2 <= found.high
    assert abs(held / WORLDS - 0.95) <= LIMIT, held


def of_rows(rng: np.random.Generator, user: np.ndarray, labels: np.ndarray, own: np.ndarray) -> Outcomes:
    signal = scores(rng, user, labels, signal=0) + own
    rows = {"auc": row_placements(labels > 0, signal), "log_loss": row_losses(labels > 0, signal)}
    return Outcomes({}, rows, labels > 0, Clusters.of_users(user))


def equals_by_rows(world: int, kind: str) -> dict[str, float]:
    """Compare two systems of the same quality, with errors of their own about each user."""
    rng = np.random.default_rng(world)
    user = users(rng, kind)
    labels = (rng.random(len(user)) < 0.5).astype(np.float32)
    own = SIGNAL * labels + rng.normal(0, 0.5, len(user))
    one, two = (of_rows(rng, user, labels, own) for _ in range(2))
    return {name: test.p for name, test in one.minus(two, ["auc", "log_loss"], resamples=10, seed=0).items()}


def equals_by_rankings(world: int, kind: str) -> dict[str, float]:
    """Compare two systems that find one of ten items at random."""
    rng = np.random.default_rng(world)
    found = [
        Outcomes.of_users({"ndcg@10": (rng.random(150) < 0.4) / np.log2(rng.integers(2, 12, 150))}) for _ in range(2)
    ]
    return {kind: found[0].minus(found[1], ["ndcg@10"], resamples=10, seed=0)["ndcg@10"].p}


def equals_over_seeds(world: int, kind: str) -> dict[str, float]:
    """Compare two models whose training moves all users together, from seed to seed; three seeds of each."""
    rng = np.random.default_rng(world)
    spread = {"none": 0.0, "small": 0.005, "large": 0.03}[kind]
    each = rng.normal(0.4, 0.1, 300)

    def model() -> Outcomes:
        runs = [each + rng.normal(0, spread) + rng.normal(0, 0.1, 300) for _ in range(3)]
        return Outcomes.mean([Outcomes.of_users({"ndcg@10": run}) for run in runs])

    return {kind: model().minus(model(), ["ndcg@10"], resamples=10, seed=0)["ndcg@10"].p}


@pytest.mark.parametrize(
    ("equals", "kind"),
    [
        (equals_by_rows, "equal users"),
        (equals_by_rows, "unequal users"),
        (equals_by_rows, "no users"),
        (equals_by_rankings, "ndcg@10"),
        (equals_over_seeds, "none"),
        (equals_over_seeds, "small"),
        (equals_over_seeds, "large"),
    ],
)
def test_equal_systems_differ_in_5_of_100_worlds(equals: Callable[[int, str], dict[str, float]], kind: str) -> None:
    alarms: dict[str, int] = {}
    for world in range(WORLDS):
        for name, p in equals(world, kind).items():
            alarms[name] = alarms.get(name, 0) + (p < 0.05)
    # What three seeds do not show is not known to be nothing, so the test errs on the careful side.
    least = 0.0 if equals is equals_over_seeds else 0.05 - LIMIT
    for name, times in alarms.items():
        assert least <= times / WORLDS <= 0.05 + LIMIT, f"{name}: {times} of {WORLDS}"


def test_intervals_of_several_rankings_per_user_hold_the_truth_in_95_of_100_worlds() -> None:
    """120 users with 1 to 9 rankings each, all of a user's found or none: for half of the users."""
    held = 0
    for world in range(WORLDS):
        rng = np.random.default_rng(world)
        owners = np.repeat(np.arange(120), rng.integers(1, 10, 120))
        found = (rng.random(120) < 0.5)[owners].astype(float)
        values = by_owner(found, owners)
        assert len(values) == 120
        assert values.mean() == pytest.approx(found.mean())
        (estimate,) = mean_estimates(values[:, None], resamples=1_000, seed=world)
        held += estimate.low <= 0.5 <= estimate.high
    assert abs(held / WORLDS - 0.95) <= LIMIT, held


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.05])
def test_intervals_over_seeds_hold_the_truth_in_95_of_100_worlds(seeds: int, spread: float) -> None:
    """Users differ by 0.1, so the mean of 300 users by 0.006; a seed moves all users by `spread` and each by 0.1."""
    held = 0
    for world in range(WORLDS):
        rng = np.random.default_rng(world)
        each = rng.normal(0.5, 0.1, 300)
        runs = [each + rng.normal(0, spread) + rng.normal(0, 0.1, 300) for _ in range(seeds)]
        low, high = Outcomes.mean([Outcomes.of_users({"ndcg@10": run}) for run in runs]).interval(
            "ndcg@10", resamples=100, seed=0
        )
        held += low <= 0.5 <= high
    assert held / WORLDS >= 0.95 - LIMIT, held


def test_p_values_over_seeds_agree_with_their_intervals() -> None:
    """The p-value at the end of a 95 % interval is 0.05."""
    users, seeds = np.random.default_rng(0).normal(0, 0.1, 200), Spread(0.02, 1)
    tested = by_means(users, seeds)
    moved = by_means(users - users.mean() + (tested.high - tested.low) / 2, seeds)
    assert moved.p == pytest.approx(0.05)
    assert moved.low == pytest.approx(0.0)
    assert by_means(users - users.mean(), seeds).p == pytest.approx(1.0)
    assert by_means(users * 0, seeds).low == pytest.approx(-12.706 * 0.02, rel=1e-4)  # t with 1 degree of freedom


def test_rows_of_one_user_are_one_draw_and_a_single_users_rows_are_all_there_is() -> None:
    together = Clusters.of_users(np.array([7, 2, 7, 1, 2]))
    assert together.count == 4
    assert together.index[0] == together.index[2]
    assert len(set(together.index[[1, 3, 4]].tolist())) == 3
    assert Clusters.of_users(np.array([5, 5, 5])).count == 3


def test_an_interval_over_seeds_holds_what_another_seed_gives() -> None:
    """Users say 0.4 within 0.001, and three seeds differ by 0.05: the next one may be anywhere between."""
    rng = np.random.default_rng(0)
    runs = [Outcomes.of_users({"ndcg@10": rng.normal(mean, 0.01, 500)}) for mean in (0.35, 0.4, 0.45)]
    low, high = Outcomes.mean(runs).interval("ndcg@10", resamples=10, seed=0)
    # t with 2 degrees of freedom is 4.3, and the standard error of the mean 0.05 / sqrt 3
    assert (low, high) == pytest.approx((0.4 - 4.3 * 0.0289, 0.4 + 4.3 * 0.0289), abs=0.003)
