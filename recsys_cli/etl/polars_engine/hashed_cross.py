"""HashedCross on Polars, with the hash function common to all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl
import pyarrow as pa

from recsys_cli.etl.hashed import crossed_ids
from recsys_cli.ops import HashedCross


def apply(op: HashedCross, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Add the crossed column as bucket ids."""
    crossed = pl.map_batches(op.columns, partial(_crossed, op.num_buckets), return_dtype=pl.Int32())
    return frame.with_columns(crossed.alias(op.output))


def _crossed(num_buckets: int, columns: Sequence[pl.Series]) -> pl.Series:
    return pl.Series(crossed_ids([column.to_arrow() for column in columns], num_buckets))
