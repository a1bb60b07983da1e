"""The item with the most rows in a held-out split: a target of most users makes a constant ranking look good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.report.facts import CommonTarget
from recsys_cli.etl.report.user_rows import read_user_rows
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.features.split import SPLITS, TRAIN


def common_targets(
    user: Column, item: Column, values: pa.ChunkedArray, sampled: str | None, shards: Mapping[str, Sequence[Path]]
) -> dict[str, CommonTarget]:
    """Count the users of the most frequent item by held-out split, for users and items with ids of their own.

    Held-out rows are read again by row group; memory grows with the numbers of users and items. `values` are the raw items
    by id.
    """
    found = {}
    for split in (name for name in SPLITS if name != SPLITS[TRAIN]):
        rows = np.zeros(item.own_ids.stop, dtype=np.int64)
        users = np.zeros(user.own_ids.stop, dtype=bool)
        for of_users, items in read_user_rows(shards[split], user, item.name, sampled=sampled):
            rows += np.bincount(items[items < len(rows)], minlength=len(rows))
            users[of_users] = True
        rows[:FIRST] = 0
        if not rows.any():
            continue
        most = int(rows.argmax())
        with_item = np.zeros(len(users), dtype=bool)
        for of_users, items in read_user_rows(shards[split], user, item.name, sampled=sampled):
            with_item[of_users[items == most]] = True
        found[split] = CommonTarget(
            item=str(values[most - FIRST]),
            users=int(np.count_nonzero(users)),
            with_item=int(np.count_nonzero(with_item)),
        )
    return found
