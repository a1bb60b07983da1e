"""Table rows of cold keys, on Polars; all engines use the same search."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl import cold_keys
from recsys_cli.ops.program import Locate


def apply(op: Locate, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the column of table rows."""

    def located(keys: pl.Series) -> pl.Series:
        return pl.Series(op.output, cold_keys.locate(keys.to_arrow(), state[op.key]))

    return frame.with_columns(pl.col(op.key).map_batches(located, return_dtype=pl.Int32()).alias(op.output))
