"""GAUC: the AUC within each user's rows, which no difference between users can flatter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.metrics.metric import GroupedMetric
from recsys_cli.evaluation.tally import Floats


def gauc(
    users: npt.NDArray[np.integer], labels: npt.NDArray[np.float32], scores: npt.NDArray[np.floating]
) -> tuple[Floats, Floats]:
    """Return the AUC of each user with rows of both labels, ties counted half, and how many rows each has.

    The mean weighted by rows is the GAUC of Zhu et al. (KDD 2017, Optimized Cost per Click in Taobao Display Advertising).
    """
    order = np.lexsort((scores, users))
    user, score, positive = users[order], scores[order], labels[order] > 0.5
    of_user = _starts(user)
    group = np.cumsum(of_user) - 1
    first = np.flatnonzero(of_user)
    # Rows of one user and score share the mean of their ranks within the user.
    tied = of_user | _starts(score)
    begins = np.flatnonzero(tied)
    middle = (begins + np.append(begins[1:], len(user)) + 1) / 2
    ranks = middle[np.cumsum(tied) - 1] - first[group]
    rows = np.bincount(group).astype(np.float64)
    positives = np.bincount(group, weights=positive)
    wins = np.bincount(group, weights=ranks * positive) - positives * (positives + 1) / 2
    both = (positives > 0) & (positives < rows)
    return wins[both] / (positives * (rows - positives))[both], rows[both]


def _starts(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    return np.append(np.ones(min(1, len(values)), dtype=bool), values[1:] != values[:-1])


GAUC = GroupedMetric("gauc", "GAUC", gauc)
