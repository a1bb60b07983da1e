"""Deduplicate: rows with one key meet in one bucket, and a byte for each row says whether it is kept."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from recsys_cli.etl.rows.buckets import POSITION, partition
from recsys_cli.etl.rows.flow import Desk, Flow, Masked
from recsys_cli.etl.rows.order import Places, group
from recsys_cli.features.ops import Deduplicate


def choose(op: Deduplicate, rows: Flow, desk: Desk) -> Flow:
    """Keep one row of each key."""
    rows = desk.settle(rows)
    buckets = partition(rows, op.columns, op.order_by, desk)
    keep = np.zeros(rows.most or 0, dtype=bool)
    for kept in buckets.map(partial(_kept, op)):
        keep[kept] = True
    buckets.delete()
    return Masked(rows, keep)


def _kept(op: Deduplicate, rows: pa.Table) -> Places:
    """Return the positions of the rows that are kept of a bucket."""
    groups = group(rows, op.columns, op.order_by)
    if op.keep == "first":
        found = groups.starts
    elif op.keep == "last":
        found = groups.ends - 1
    else:
        found = groups.starts[groups.ends - groups.starts == 1]
    positions: Places = rows.column(POSITION).to_numpy()[groups.order[found]]
    return positions
