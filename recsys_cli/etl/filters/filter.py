"""Filter: the expression is computed as LambdaOp computes it, and rows are kept where it is neither 0 nor null."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.filters.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.etl.polars_engine import lambda_op
from recsys_cli.features.columns import KEEP, ROW_NUMBER
from recsys_cli.features.ops import Filter, LambdaOp


def choose(op: Filter, rows: Flow, context: OpContext) -> Flow:
    """Keep the rows for which the expression is true."""
    return filter_rows(rows, partial(_keep, op.computing(KEEP)), context.wanted)


def _keep(op: LambdaOp, batch: pa.Table) -> Mask:
    frame = pl.LazyFrame(batch.select([ROW_NUMBER, *op.reads]))  # the number, because an expression may read nothing
    truth = lambda_op.apply(op, {}, frame).select(KEEP).collect().to_series().to_numpy()
    return (truth != 0) & ~np.isnan(truth)
