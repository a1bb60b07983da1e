"""Categorify on Polars: counting and encoding run in NumPy on 64-bit keys, faster than Polars on strings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.counts import count, unpacked
from recsys_cli.etl.hashed import Ids
from recsys_cli.etl.polars_engine.encoder import encoder_of
from recsys_cli.ops import Categorify


def learn(op: Categorify, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count each distinct value, null included, as `value` and `count`; lists by element."""
    unweighted = not weight.meta.root_names()
    queries = {}
    for column in op.learns:
        values = frame.select(pl.col(column).alias("value"), weight.alias("count"))
        if isinstance(values.collect_schema()["value"], pl.List):
            values = values.filter(pl.col("value").list.len() > 0).explode("value")
        kind = values.collect_schema()["value"]
        if isinstance(kind, pl.Categorical | pl.Enum):
            kind = pl.String()
            values = values.with_columns(pl.col("value").cast(kind))
        if unweighted:
            schema = {"value": kind, "count": pl.Int64()}
            queries[column] = values.select("value").map_batches(_counted, schema=schema)
        else:
            queries[column] = values.group_by("value").agg(pl.col("count").sum())
    return queries


def apply(op: Categorify, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Replace values by ids."""
    encoders = {
        name: partial(encoder_of(state[op.vocabulary_of(name)]), num_buckets=op.num_buckets) for name in op.learns
    }
    return frame.with_columns(encode_column(name, frame, to_ids) for name, to_ids in encoders.items())


def encode_column(column: str, frame: pl.LazyFrame, to_ids: Callable[[pa.Array], Ids]) -> pl.Expr:
    """Encode a column by `encode`."""
    is_list = isinstance(frame.select(column).collect_schema()[column], pl.List)
    kind = pl.List(pl.Int32()) if is_list else pl.Int32()
    return pl.col(column).map_batches(partial(_encoded, to_ids), return_dtype=kind)


def _counted(frame: pl.DataFrame) -> pl.DataFrame:
    series = frame.get_column("value")
    return pl.DataFrame(unpacked(count(series.to_arrow()))).cast({"value": series.dtype})


def _encoded(to_ids: Callable[[pa.Array], Ids], series: pl.Series) -> pl.Series:
    return pl.Series(series.name, pl.from_arrow(encode(series.to_arrow(), to_ids)))


def encode(array: pa.Array, to_ids: Callable[[pa.Array], Ids]) -> pa.Array:
    """Encode values as int32 ids; lists by element, with an empty list for a null list."""
    if isinstance(array, pa.LargeListArray):
        array = array.cast(pa.list_(array.type.value_type))
    if not isinstance(array, pa.ListArray):
        return pa.array(to_ids(array))
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(to_ids(array.flatten())))
