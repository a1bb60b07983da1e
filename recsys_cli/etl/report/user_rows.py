"""A second reading of prepared rows: users and one more column, by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.features.schema import FIRST, Column

Ids = npt.NDArray[np.int64]


def read_user_rows(
    paths: Sequence[Path], user: Column, other: str, *, sampled: str | None
) -> Iterator[tuple[Ids, npt.NDArray[Any]]]:
    """Yield users with an id of their own and the values of another column, without nulls and sampled negatives."""
    columns = [user.name, other, *([sampled] if sampled else [])]
    for path in paths:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=columns, use_threads=False)
                rows = rows.filter(pc.equal(rows.column(sampled), 0)) if sampled else rows
                rows = rows.drop_null()
                users = rows.column(user.name).to_numpy().astype(np.int64)
                own = (users >= FIRST) & (users < user.own_ids.stop)
                yield users[own], rows.column(other).to_numpy()[own]
