"""Filter: rows with a true expression (not 0, not null), in the semantics of LambdaOp."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.filters.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.etl.polars_engine import lambda_op
from recsys_cli.features.columns import KEEP, ROW_NUMBER
from recsys_cli.ops import Filter, LambdaOp


def choose(op: Filter, rows: Flow, context: OpContext) -> Flow:
    """Keep the rows with a true expression."""
    return filter_rows(rows, partial(_keep, op.computing(KEEP)), context.keeps)


def _keep(op: LambdaOp, batch: pa.Table) -> Mask:
    frame = pl.LazyFrame(batch.select([ROW_NUMBER, *op.reads]))  # ROW_NUMBER, because an expression may read no column
    truth = lambda_op.apply(op, {}, frame).select(KEEP).collect().to_series().to_numpy()
    return (truth != 0) & ~np.isnan(truth)
