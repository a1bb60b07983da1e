"""LogOp on Polars; NaN passes through, values below -1 become NaN."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import change
from recsys_cli.ops import LogOp


def apply(op: LogOp, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Replace x by log(1 + x)."""
    types = dict.fromkeys(op.columns, pa.float64())
    return frame.with_columns(change(frame, types, lambda values, _: (values + 1.0).log()))
