"""Held-out rows with a later interaction of the same user in an earlier split: targets whose future the model has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.report.clock import Clock
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.features.split import SPLITS


def rows_with_a_future(
    user: Column, timestamp: str, sampled: str | None, shards: Mapping[str, Sequence[Path]], clock: Clock
) -> dict[str, int]:
    """Count these rows by held-out split, for users with an id of their own; equal times do not count.

    Rows are read again by row group. Splits that end before the next one begins are not read.
    """
    latest = np.full(user.own_ids.stop, clock.low, dtype=np.array(clock.low).dtype)
    counts: dict[str, int] = {}
    columns = [user.name, timestamp, *([sampled] if sampled else [])]
    for number, split in enumerate(name for name in SPLITS if name in clock.ends):
        if number:
            begins = clock.ends[split][0]
            overlaps = any(clock.ends[earlier][1] > begins for earlier, later in clock.borders if later == split)
            parts = _parts(shards[split], columns, user, sampled) if overlaps else ()
            counts[split] = sum(int(np.count_nonzero(times < latest[users])) for users, times in parts)
        if number < len(clock.ends) - 1:
            for users, times in _parts(shards[split], columns, user, sampled):
                np.maximum.at(latest, users, times)
    return counts


def _parts(
    paths: Sequence[Path], columns: list[str], user: Column, sampled: str | None
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]:
    """Yield users and times of the interactions, by row group."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=columns, use_threads=False)
                rows = rows.filter(pc.equal(rows.column(sampled), 0)) if sampled else rows
                rows = rows.drop_null()
                users = rows.column(columns[0]).to_numpy().astype(np.int64)
                own = (users >= FIRST) & (users < user.own_ids.stop)
                yield users[own], rows.column(columns[1]).to_numpy()[own]
