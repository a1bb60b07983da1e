"""Dropna: removal of rows with null or NaN in some columns."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.filters.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops import Dropna


def choose(op: Dropna, rows: Flow, context: OpContext) -> Flow:
    """Keep the rows without a missing value."""
    return filter_rows(rows, partial(_keep, op.columns), context.keeps)


def _keep(names: tuple[str, ...], batch: pa.Table) -> Mask:
    keep = np.ones(batch.num_rows, dtype=bool)
    for name in names or [name for name in batch.column_names if name != ROW_NUMBER]:
        values = batch.column(name)
        if values.null_count or pa.types.is_floating(values.type):
            keep &= ~pc.is_null(values, nan_is_null=pa.types.is_floating(values.type)).to_numpy()
    return keep
