"""GAUC: AUC within each user's rows, weighted by rows; blind to differences between users."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.auc import auc_of_groups
from recsys_cli.metrics.metric import GroupedMetric
from recsys_cli.metrics.score_counts import Floats, count_runs, run_starts


def gauc(
    users: npt.NDArray[np.integer], labels: npt.NDArray[np.float32], scores: npt.NDArray[np.floating]
) -> tuple[Floats, Floats]:
    """Return the AUC of each user with both classes, ties as 1/2, and the user's number of rows; each (G,).

    Their weighted mean is the GAUC of Zhu et al. (KDD 2017, Optimized Cost per Click in Taobao Display Advertising).
    """
    if not len(users):
        return np.empty(0), np.empty(0)
    order = np.lexsort((scores, users))
    starts = run_starts(users[order], scores[order])
    positive, rows = count_runs(labels[order] > 0.5, starts)
    of_user = run_starts(users[order][starts])
    values = auc_of_groups(positive, rows - positive, of_user)
    both = np.isfinite(values)
    return values[both], np.add.reduceat(rows, of_user)[both]


GAUC = GroupedMetric("gauc", "GAUC", gauc)
