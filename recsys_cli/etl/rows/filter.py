"""Filter: the expression is computed as LambdaOp computes it, and rows are kept where it is neither 0 nor null."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine import lambda_op
from recsys_cli.etl.rows.flow import Desk, Flow, Mask, sifted
from recsys_cli.etl.staging import NUMBER
from recsys_cli.features.ops import Filter, LambdaOp

_KEEP = "\x01keep"


def choose(op: Filter, rows: Flow, desk: Desk) -> Flow:
    """Keep the rows for which the expression is true."""
    return sifted(rows, partial(_keep, op.computing(_KEEP)), desk.wanted)


def _keep(op: LambdaOp, batch: pa.Table) -> Mask:
    frame = pl.LazyFrame(batch.select([NUMBER, *op.reads]))  # the number, because an expression may read nothing
    truth = lambda_op.apply(op, {}, frame).select(_KEEP).collect().to_series().to_numpy()
    return (truth != 0) & ~np.isnan(truth)
