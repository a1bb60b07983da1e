"""95 % intervals of rankings, by resampling users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.result import Estimate
from recsys_cli.features.hashing import mix
from recsys_cli.metrics import RANKING, Hits
from recsys_cli.metrics.foreign import extended
from recsys_cli.metrics.score_counts import Floats

_CHUNK = 1 << 22
_USERS = 12


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
    metrics = extended(RANKING, config.metrics).values()
    columns = [(name, metric, cut_off) for name in found for cut_off in sorted(set(k)) for metric in metrics]
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
    below = _expanded(num_users)
    centre, ends = values.mean(axis=0), np.quantile(means, [below, 1 - below], axis=0)
    return [
        Estimate(value=float(value), low=min(float(low), float(value)), high=max(float(high), float(value)))
        for value, low, high in zip(centre, *ends, strict=True)
    ]


def _times_drawn(rng: np.random.Generator, resamples: int, num_users: int) -> npt.NDArray[np.float64]:
    """Draw `num_users` users with replacement, again and again, and count each; shape (resamples, num_users)."""
    drawn = rng.integers(0, num_users, (resamples, num_users)) + num_users * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * num_users).reshape(resamples, num_users).astype(float)


def _expanded(num_users: int) -> float:
    """Return which share of the resamples lies below a 95 % interval.

    A little less than 2.5 %: resamples vary less than samples do, and the t distribution has wider tails than the normal one
    (the expanded percentile interval of Hesterberg, 2015).
    """
    if num_users < 2:
        return 0.025
    reach = math.sqrt(num_users / (num_users - 1)) * float(stdtrit(num_users - 1, 0.975))
    return math.erfc(reach / math.sqrt(2)) / 2
