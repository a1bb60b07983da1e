"""Intra-list diversity: how different are the items of one list from each other?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import Catalogue, ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats

_USERS = 4_096


def diversity(lists: Recommended, k: int) -> Floats:
    """Return 1 - the mean cosine of the features of all pairs of items in each user's first k places; shape (U,).

    Features are categories of the item, such as genres: of items with m and n of them, c in common, the cosine is
    c / sqrt(m n). Items without any are left out; NaN for a user with less than two others. Ziegler et al. (WWW 2005).
    """
    blocks = range(0, len(lists.places), _USERS)
    parts = [_block(lists.places[start : start + _USERS, :k], lists.catalogue) for start in blocks]
    return np.concatenate(parts) if parts else np.empty(0)


def _block(places: npt.NDArray[np.int32], catalogue: Catalogue) -> Floats:
    # The cosines of all pairs are the squared length of the sum of the items' unit vectors, less one for each item.
    user, column = np.nonzero(places >= 0)
    item = places[user, column]
    starts = catalogue.offsets[item]
    lengths = catalogue.offsets[item + 1] - starts
    number = np.bincount(user[lengths > 0], minlength=len(places))
    row = np.repeat(np.arange(len(item)), lengths)
    feature = catalogue.features[np.arange(len(row)) + (starts - np.cumsum(lengths) + lengths)[row]]
    width = int(catalogue.features.max(initial=0)) + 1
    pairs, where = np.unique(user[row] * width + feature, return_inverse=True)
    sums = np.bincount(where, weights=1 / np.sqrt(lengths[row]), minlength=len(pairs))
    squared = np.bincount(pairs // width, weights=sums**2, minlength=len(places))
    return np.where(number > 1, 1 - (squared - number) / np.maximum(number * (number - 1), 1), np.nan)


DIVERSITY = ListMetric("diversity", "intra-list diversity", "higher", diversity)
