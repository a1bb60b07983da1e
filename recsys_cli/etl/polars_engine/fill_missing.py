"""FillMissing on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import calculated, filled
from recsys_cli.ops import FillMissing


def apply(op: FillMissing, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Fill nulls and NaN with `fill_val`."""
    types = calculated(frame, op.columns, op.fill_val)
    return filled(frame, types, dict.fromkeys(types, op.fill_val), indicators=op.add_binary_cols)
