"""HashBucket on Polars, with the hash function common to all engines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import polars as pl
import pyarrow as pa

from recsys_cli.etl.hashed import bucket_ids
from recsys_cli.etl.polars_engine.categorify import encode_column
from recsys_cli.ops import HashBucket


def apply(op: HashBucket, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Replace values by bucket ids."""
    return frame.with_columns(
        encode_column(name, frame, partial(bucket_ids, num_buckets=op.buckets_of(name))) for name in op.columns
    )
