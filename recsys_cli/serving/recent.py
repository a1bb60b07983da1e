"""Histories with the feedback after training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recsys_cli.serving.histories import Histories, History
from recsys_cli.serving.query import RecentInteraction


def extended(
    histories: Histories,
    stored: History,
    recent: Sequence[RecentInteraction],
    items: npt.NDArray[np.int64],
) -> History:
    """Return a stored history followed by recent interactions; a recent one replaces a stored one of the same item.

    Args:
        histories: All histories, for the meaning of labels and times.
        stored: The history of the user.
        recent: The recent interactions, oldest first.
        items: Their encoded items, -1 for unknown ones.
    """
    known = np.flatnonzero(items >= 0)
    if not len(known):
        return stored
    positives = histories.of_items(items[known])
    given = [recent[row].label for row in known]
    labels = [own if label is None else label for own, label in zip(positives.labels, given, strict=True)]
    if histories.mean is None:
        labels = [float(label > 0) for label in labels]
    kept = ~np.isin(stored.items, items[known])
    times = None
    if stored.times is not None and positives.times is not None:
        last = stored.times[-1:].astype(np.int64).max(initial=0)
        following = (last + 1 + np.arange(len(known))).astype(stored.times.dtype)
        times = np.concatenate([stored.times[kept], following])
    return History(
        np.concatenate([stored.items[kept], positives.items]),
        np.concatenate([stored.labels[kept], np.array(labels, np.float32)]),
        times,
    )
