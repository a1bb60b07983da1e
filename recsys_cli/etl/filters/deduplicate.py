"""Deduplicate: groups of equal keys, bucket by bucket, with a mask of one byte per row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from recsys_cli.etl.filters.buckets import partition
from recsys_cli.etl.filters.flow import Flow, Masked, OpContext
from recsys_cli.etl.filters.order import Positions, group
from recsys_cli.features.columns import POSITION
from recsys_cli.ops import Deduplicate


def choose(op: Deduplicate, rows: Flow, context: OpContext) -> Flow:
    """Keep one row of each key."""
    rows = context.materialize(rows)
    buckets = partition(rows, op.columns, op.order_by, context)
    keep = np.zeros(rows.most or 0, dtype=bool)
    for positions in buckets.map(partial(_kept, op)):
        keep[positions] = True
    buckets.delete()
    return Masked(rows, keep)


def _kept(op: Deduplicate, rows: pa.Table) -> Positions:
    groups = group(rows, op.columns, op.order_by)
    if op.keep == "first":
        kept = groups.starts
    elif op.keep == "last":
        kept = groups.ends - 1
    else:
        kept = groups.starts[groups.ends - groups.starts == 1]
    positions: Positions = rows.column(POSITION).to_numpy()[groups.order[kept]]
    return positions
