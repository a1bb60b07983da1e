"""Deduplicate: rows with one key meet in one bucket, and a byte for each row says whether it is kept."""

from __future__ import annotations

import numpy as np
import polars as pl

from recsys_cli.etl.rows.buckets import POSITION, partition
from recsys_cli.etl.rows.flow import Desk, Flow, Masked
from recsys_cli.features.ops import Deduplicate


def choose(op: Deduplicate, rows: Flow, desk: Desk) -> Flow:
    """Keep one row of each key."""
    rows = desk.settle(rows)
    buckets = partition(rows, op.columns, op.order_by, desk.folder)
    keep = np.zeros(rows.most or 0, dtype=bool)
    for bucket in buckets:
        frame = pl.DataFrame(bucket)
        if op.order_by:
            order = [pl.col(name).fill_nan(None) if frame.schema[name].is_float() else name for name in op.order_by]
            frame = frame.sort([*order, POSITION], nulls_last=True)
        kept = frame.unique(op.columns, keep=op.keep).get_column(POSITION)
        keep[kept.to_numpy()] = True
    buckets.delete()
    return Masked(rows, keep)
