"""Histories with the feedback after training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.serving.histories import Histories, History
from recsys_cli.serving.query import RecentInteraction

_LATEST = 2.0**62
"""Largest time, within int64 in any unit."""


def extended(
    histories: Histories,
    stored: History,
    recent: Sequence[RecentInteraction],
    items: npt.NDArray[np.int64],
    *,
    ticks: int = 1,
) -> History:
    """Return a stored history with recent interactions in order of time, in which ties and unknown times come after the stored.

    A recent interaction replaces a stored one of the same item. Without stored times, recent ones follow.

    Args:
        histories: All histories, for the meaning of labels and times.
        stored: The history of the user.
        recent: The recent interactions, oldest first.
        items: Their encoded items, -1 for unknown ones.
        ticks: Units of the stored times per second.
    """
    known = np.flatnonzero(items >= 0)
    if not len(known):
        return stored
    positives = histories.of_items(items[known])
    known_events = [recent[row] for row in known.tolist()]
    labels = [
        own if label is None else label
        for own, label in zip(positives.labels, (event.label for event in known_events), strict=True)
    ]
    if histories.mean is None:
        labels = [float(label > 0) for label in labels]
    kept = ~np.isin(stored.items, items[known])
    together = History(
        np.concatenate([stored.items[kept], positives.items]),
        np.concatenate([stored.labels[kept], np.array(labels, np.float32)]),
        None,
    )
    if stored.times is None:
        return together
    times = np.concatenate([stored.times[kept], _times([event.time for event in known_events], stored.times, ticks)])
    order = np.argsort(times, kind="stable")
    return History(together.items[order], together.labels[order], times[order])


def _times(seconds: Sequence[float | None], stored: npt.NDArray[Any], ticks: int) -> npt.NDArray[Any]:
    """Return times in the unit and type of the stored ones; unknown times follow all others."""
    given = [None if time is None else stored.dtype.type(min(time * ticks, _LATEST)) for time in seconds]
    last = max([*stored[-1:].tolist(), *(time for time in given if time is not None)], default=0)
    times = [last + 1 + row if time is None else time for row, time in enumerate(given)]
    return np.array(times, stored.dtype)
