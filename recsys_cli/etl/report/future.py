"""Held-out rows with a later interaction of the same user in an earlier split: targets whose future the model has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from recsys_cli.etl.report.clock import Clock
from recsys_cli.etl.report.user_rows import read_user_rows
from recsys_cli.features.schema import Column
from recsys_cli.features.split import SPLITS


def rows_with_a_future(
    user: Column, timestamp: str, sampled: str | None, shards: Mapping[str, Sequence[Path]], clock: Clock
) -> dict[str, int]:
    """Count these rows by held-out split, for users with an id of their own; equal times do not count.

    Rows are read again by row group. Splits that end before the next one begins are not read.
    """
    latest = np.full(user.own_ids.stop, clock.low, dtype=np.array(clock.low).dtype)
    counts: dict[str, int] = {}
    for number, split in enumerate(name for name in SPLITS if name in clock.ends):
        if number:
            begins = clock.ends[split][0]
            overlaps = any(clock.ends[earlier][1] > begins for earlier, later in clock.borders if later == split)
            parts = read_user_rows(shards[split], user, timestamp, sampled=sampled) if overlaps else ()
            counts[split] = sum(int(np.count_nonzero(times < latest[users])) for users, times in parts)
        if number < len(clock.ends) - 1:
            for users, times in read_user_rows(shards[split], user, timestamp, sampled=sampled):
                np.maximum.at(latest, users, times)
    return counts
