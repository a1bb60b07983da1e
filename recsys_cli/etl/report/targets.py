"""The item with the most rows in a held-out split: a target of most users makes a constant ranking look good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.etl.report.facts import CommonTarget
from recsys_cli.etl.report.user_rows import read_user_rows
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.features.split import SPLITS, TRAIN


def common_targets(
    user: Column,
    item: Column,
    values: pa.ChunkedArray,
    sampled: str | None,
    shards: Mapping[str, Sequence[Path]],
    counts: Mapping[str, npt.NDArray[np.int64]],
) -> dict[str, CommonTarget]:
    """Count the users of the most frequent item by held-out split, for users and items with ids of their own.

    Held-out rows are read again by row group; memory grows with the number of users. `values` are the raw items by id,
    `counts` the rows of each item by split.
    """
    found = {}
    for split in (name for name in SPLITS if name != SPLITS[TRAIN]):
        rows = counts[split][FIRST : item.own_ids.stop]
        if not rows.any():
            continue
        most = int(rows.argmax())
        users, with_item = np.zeros((2, user.own_ids.stop), dtype=bool)
        for of_users, items in read_user_rows(shards[split], user, item.name, sampled=sampled):
            users[of_users] = True
            with_item[of_users[items == FIRST + most]] = True
        if users.any():
            found[split] = CommonTarget(
                item=str(values[most]),
                users=int(np.count_nonzero(users)),
                with_item=int(np.count_nonzero(with_item)),
            )
    return found
