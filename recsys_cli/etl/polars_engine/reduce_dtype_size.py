"""ReduceDtypeSize on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.numeric import TYPES, VALUE, calculated, change, finite_values
from recsys_cli.ops import ReduceDtypeSize
from recsys_cli.ops.reduce_dtype_size import reduced

_LARGEST = 2**63 - 1


def learn(op: ReduceDtypeSize, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Compute the range of integer columns, null for float columns; lists by element."""
    ends = {"low": pl.col(VALUE).min(), "high": pl.col(VALUE).max()}
    within = [end.clip(upper_bound=_LARGEST).cast(pl.Int64).alias(name) for name, end in ends.items()]
    nothing = [pl.lit(None, pl.Int64).alias(name) for name in ends]
    types = calculated(frame, op.columns)
    return {
        column: frame.select(nothing)
        if pa.types.is_floating(kind)
        else finite_values(frame, column, weight, kind=kind).select(within)
        for column, kind in types.items()
    }


def apply(op: ReduceDtypeSize, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Cast the columns to the smallest types for the values of train."""
    types = calculated(frame, op.columns)

    def smaller(values: pl.Expr, name: str) -> pl.Expr:
        if pa.types.is_floating(types[name]):
            return values.cast(pl.Float32)
        dtype = reduced(state[name])
        low = 0 if types[name] == pa.uint64() else int(np.iinfo(dtype).min)
        return values.clip(low, int(np.iinfo(dtype).max)).cast(TYPES[pa.type_for_alias(dtype)]).fill_null(0)

    return frame.with_columns(change(frame, types, smaller))
