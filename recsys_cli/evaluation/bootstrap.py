"""95 % intervals by resampling: rows for pointwise figures, users for rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.metrics import RANKING, Hits, PointwiseMetric
from recsys_cli.evaluation.result import Estimate
from recsys_cli.evaluation.tally import Floats, Tally
from recsys_cli.features.hashing import mix

GROUPS = 1 << 14
"""Scores are merged into so many groups for the resamples; exact where there are no more distinct scores."""
_CHUNK = 1 << 22
_ROWS, _USERS = 11, 12


def pointwise_estimates(
    tally: Tally, metrics: Mapping[str, PointwiseMetric], *, resamples: int, seed: int, groups: int | None = None
) -> dict[str, Estimate]:
    """Compute pointwise metrics of the rows as they are, with intervals from a Poisson bootstrap over rows.

    Args:
        tally: The rows.
        metrics: What to compute, by name.
        resamples: How often rows are drawn.
        seed: Decides the draws.
        groups: How many groups scores are merged into for the resamples; GROUPS where left out.
    """
    small = tally.compressed(groups or GROUPS)
    step = max(1, _CHUNK // max(1, len(small.logits)))
    drawn: dict[str, list[Floats]] = {name: [] for name in metrics}
    for start in range(0, resamples, step):
        resample = small.resampled(range(start, min(start + step, resamples)), seed=mix(seed, _ROWS))
        for name, metric in metrics.items():
            drawn[name].append(metric.compute(resample))
    return {
        name: _estimate(float(metric.compute(tally)[0]), np.concatenate(drawn[name]), biased=metric.biased)
        for name, metric in metrics.items()
    }


def ranking_estimates(
    found: Mapping[str, Hits], k: Sequence[int], config: EvaluateConfig
) -> dict[str, dict[str, Estimate]]:
    """Measure what the rankings of several systems find for the same users, with the same resamples of users.

    Args:
        found: By system.
        k: The cut-offs.
        config: Number of resamples and seed, and what the names of the figures begin with.
    """
    if not found:
        return {}
    columns = [(name, metric, cut_off) for name in found for cut_off in sorted(set(k)) for metric in RANKING.values()]
    values = np.stack([metric.compute(found[name], cut_off) for name, metric, cut_off in columns], axis=1)
    means = mean_estimates(values, resamples=config.bootstrap, seed=config.seed)
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in found}
    for (name, metric, cut_off), mean in zip(columns, means, strict=True):
        estimates[name][f"{config.label}{metric.name}@{cut_off}"] = mean
    return estimates


def mean_estimates(values: Floats, *, resamples: int, seed: int) -> list[Estimate]:
    """Average columns over users, with intervals from a bootstrap over users.

    Args:
        values: One row a user, one column a metric; shape (U, M). All columns see the same resamples.
        resamples: How often U users are drawn with replacement.
        seed: Decides the draws.
    """
    num_users, num_columns = values.shape
    if num_users == 0:
        return [Estimate(value=None)] * num_columns
    rng = np.random.default_rng(mix(seed, _USERS))
    means = np.empty((resamples, num_columns))
    step = max(1, _CHUNK // num_users)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        means[start:stop] = _times_drawn(rng, stop - start, num_users) @ values / num_users
    centre = values.mean(axis=0)
    return [_estimate(float(centre[column]), means[:, column]) for column in range(num_columns)]


def weighted_estimate(values: Floats, weights: Floats, *, resamples: int, seed: int) -> Estimate:
    """Average values (U,) by weights (U,), with an interval from a bootstrap over users, each with its value and weight."""
    num_users = len(values)
    if num_users == 0:
        return Estimate(value=None)
    rng = np.random.default_rng(mix(seed, _USERS))
    columns = np.stack([values * weights, weights], axis=1)
    step = max(1, _CHUNK // num_users)
    sums = [_times_drawn(rng, min(step, resamples - start), num_users) @ columns for start in range(0, resamples, step)]
    drawn = np.concatenate(sums)
    return _estimate(float(values @ weights / weights.sum()), drawn[:, 0] / drawn[:, 1])


def _times_drawn(rng: np.random.Generator, resamples: int, num_users: int) -> npt.NDArray[np.float64]:
    """Draw `num_users` users with replacement, again and again, and count each; shape (resamples, num_users)."""
    drawn = rng.integers(0, num_users, (resamples, num_users)) + num_users * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * num_users).reshape(resamples, num_users).astype(float)


def _estimate(value: float, drawn: Floats, *, biased: bool = False) -> Estimate:
    """Read the interval off the resamples.

    Resamples of a biased figure lie too high, because they have the noise of the rows and their own on top. Its interval goes
    down to where they are reflected at the value (the basic bootstrap: Davison and Hinkley, 1997, section 5.2), and up to where
    they are: reflecting the upper end too would promise too much near 0, where they cannot lie below the value.
    """
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(value):
        return Estimate(value=None)
    if len(drawn) == 0:
        return Estimate(value=value)
    low, high = (float(end) for end in np.quantile(drawn, [0.025, 0.975]))
    if biased:
        low = max(0.0, 2 * value - high)
    return Estimate(value=value, low=min(low, value), high=max(high, value))
