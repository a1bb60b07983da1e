"""95 % confidence intervals of ranking metrics, by a bootstrap over users."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.clusters import by_owner
from recsys_cli.evaluation.result import Estimate
from recsys_cli.features.hashing import mix
from recsys_cli.metrics import RANKING, Hits
from recsys_cli.metrics.foreign import extended
from recsys_cli.metrics.metric import Floats

_CHUNK = 1 << 22
_USERS = 12


def ranking_estimates(
    hits: Mapping[str, Hits], k: Sequence[int], config: EvaluateConfig
) -> dict[str, dict[str, Estimate]]:
    """Compute ranking metrics of several systems for the same users, with the same resamples of users."""
    if not hits:
        return {}
    metrics = extended(RANKING, config.metrics).values()
    columns = [(name, metric, cut_off) for name in hits for cut_off in sorted(set(k)) for metric in metrics]
    values = np.stack([metric.compute(hits[name], cut_off) for name, metric, cut_off in columns], axis=1)
    values = by_owner(values, next(iter(hits.values())).owners)
    means = unit_estimates(values, resamples=config.bootstrap, seed=config.seed)
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in hits}
    for (name, metric, cut_off), mean in zip(columns, means, strict=True):
        estimates[name][f"{config.label}{metric.name}@{cut_off}"] = mean
    return estimates


def widened(interval: tuple[float, float], num_users: int) -> tuple[float, float]:
    """Return the interval of a metric in [0, 1], within it; at 0 or 1 up to the exact bound 1 - 0.025^(1/U) for U users.

    Resamples of linearized values can leave [0, 1]. Resamples of equal values are equal, but U users without a hit leave
    room for a share with hits (Clopper and Pearson, 1934).
    """
    reach, (low, high) = 0.025 ** (1 / num_users), (max(0.0, interval[0]), min(1.0, interval[1]))
    return {(0.0, 0.0): (0.0, 1 - reach), (1.0, 1.0): (reach, 1.0)}.get((low, high), (low, high))


def unit_estimates(values: Floats, *, resamples: int, seed: int) -> list[Estimate]:
    """Return metrics in [0, 1]: the mean of each column of values (U, M) over users, with intervals."""
    means = mean_estimates(values, resamples=resamples, seed=seed)
    ends = (None if mean.interval is None else widened(mean.interval, len(values)) for mean in means)
    return [
        mean if found is None else Estimate(value=mean.value, low=found[0], high=found[1])
        for mean, found in zip(means, ends, strict=True)
    ]


def mean_estimates(values: Floats, *, resamples: int, seed: int) -> list[Estimate]:
    """Return the mean of each column of values (U, M) over users, with intervals from a bootstrap over users.

    All columns share the resamples.
    """
    num_users, num_columns = values.shape
    if num_users == 0:
        return [Estimate(value=None)] * num_columns
    rng = np.random.default_rng(mix(seed, _USERS))
    means = np.empty((resamples, num_columns))
    step = max(1, _CHUNK // num_users)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        means[start:stop] = _resample_counts(rng, stop - start, num_users) @ values / num_users
    below = _tail_share(num_users)
    center, ends = values.mean(axis=0), np.quantile(means, [below, 1 - below], axis=0)
    return [
        Estimate(value=float(value), low=min(float(low), float(value)), high=max(float(high), float(value)))
        for value, low, high in zip(center, *ends, strict=True)
    ]


def _resample_counts(rng: np.random.Generator, resamples: int, num_users: int) -> npt.NDArray[np.float64]:
    """Resample users with replacement and count each; shape (resamples, num_users)."""
    resampled = rng.integers(0, num_users, (resamples, num_users)) + num_users * np.arange(resamples)[:, None]
    return np.bincount(resampled.ravel(), minlength=resamples * num_users).reshape(resamples, num_users).astype(float)


def _tail_share(num_users: int) -> float:
    """Return the share of resamples below the 95 % interval: slightly less than 2.5 %.

    Resamples vary less than samples, and the t distribution has wider tails than the normal one (expanded percentile
    interval of Hesterberg, 2015).
    """
    if num_users < 2:
        return 0.025
    reach = math.sqrt(num_users / (num_users - 1)) * float(stdtrit(num_users - 1, 0.975))
    return math.erfc(reach / math.sqrt(2)) / 2
