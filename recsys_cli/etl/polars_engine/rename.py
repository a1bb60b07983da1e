"""Rename on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.ops import Rename


def apply(op: Rename, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Rename the columns."""
    return frame.rename(op.columns)
