"""Intra-list diversity: mean pairwise feature distance of a user's recommendations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import Catalog, ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats

_USERS = 4_096


def diversity(lists: Recommended, k: int) -> Floats:
    """Return 1 - mean pairwise cosine of item features in each user's top k; in [0, 1]; shape (U,).

    Features are categories, such as genres: sets of size m and n with c in common have the cosine c / sqrt(m n).
    Items without features are left out; NaN for fewer than two items. Ziegler et al. (WWW 2005).
    """
    blocks = range(0, len(lists.candidates), _USERS)
    parts = [_block(lists.candidates[start : start + _USERS, :k], lists.catalog) for start in blocks]
    return np.concatenate(parts) if parts else np.empty(0)


def _block(candidates: npt.NDArray[np.int32], catalog: Catalog) -> Floats:
    # The sum of cosines over ordered pairs is the squared length of the sum of unit vectors, minus one per item.
    user, column = np.nonzero(candidates >= 0)
    item = candidates[user, column]
    starts = catalog.offsets[item]
    lengths = catalog.offsets[item + 1] - starts
    number = np.bincount(user[lengths > 0], minlength=len(candidates))
    row = np.repeat(np.arange(len(item)), lengths)
    feature = catalog.features[np.arange(len(row)) + (starts - np.cumsum(lengths) + lengths)[row]]
    width = int(catalog.features.max(initial=0)) + 1
    pairs, where = np.unique(user[row] * width + feature, return_inverse=True)
    sums = np.bincount(where, weights=1 / np.sqrt(lengths[row]), minlength=len(pairs))
    squared = np.bincount(pairs // width, weights=sums**2, minlength=len(candidates))
    return np.where(number > 1, 1 - (squared - number) / np.maximum(number * (number - 1), 1), np.nan)


DIVERSITY = ListMetric("diversity", "intra-list diversity", "higher", diversity, in_unit=True)
