"""Categorify on Polars: count, order, and encode. Whole numbers in a narrow range are encoded by a lookup array."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.ops import Categorify
from recsys_cli.features.schema import FIRST, NULL, UNSEEN

_LOOKUP_ROWS = 1 << 24
"""Widest range of whole numbers that is encoded by a lookup array (64 MB); a wider one by a hash join."""


def learn(op: Categorify, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count each distinct value of each column, null as well, as `value` and `count`; lists by element."""
    queries = {}
    for column in op.columns:
        values = frame.select(pl.col(column).alias("value"), weight.alias("count"))
        if isinstance(values.collect_schema()["value"], pl.List):
            values = values.filter(pl.col("value").list.len() > 0).explode("value")
        queries[column] = values.group_by("value", maintain_order=True).agg(pl.col("count").sum())
    return queries


def apply(op: Categorify, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Replace the columns by ids."""
    types = frame.select(op.columns).collect_schema()
    encoded = []
    for column in op.columns:
        encoder = Encoder(state[op.vocabulary_of(column)])
        kind = pl.List(pl.Int32) if isinstance(types[column], pl.List) else pl.Int32()
        encoded.append(pl.col(column).map_batches(partial(_encoded, encoder), return_dtype=kind))
    return frame.with_columns(encoded)


def _encoded(encoder: Encoder, series: pl.Series) -> pl.Series:
    return pl.Series(series.name, pl.from_arrow(encode(series.to_arrow(), encoder)))


class Encoder:
    """Turns values into ids with one vocabulary."""

    def __init__(self, table: pa.Table) -> None:
        self.values = table.column("value").combine_chunks()
        self._low = 0
        self._lookup = self._lookup_array() if pa.types.is_integer(self.values.type) else None
        self._frame = pl.DataFrame({
            "value": pl.from_arrow(self.values),
            "id": np.arange(FIRST, FIRST + len(self.values), dtype=np.int32),
        })  # fmt: skip

    def __call__(self, values: pa.Array) -> pa.Array:
        """Return int32 ids; nulls are NULL, values that are not in the vocabulary UNSEEN."""
        if self._lookup is not None and values.null_count == 0 and pa.types.is_integer(values.type):
            # The lookup array has an UNSEEN entry at each end, where everything out of its range is clipped to.
            keys = values.to_numpy(zero_copy_only=False)
            if values.type not in {pa.int32(), pa.int64()}:
                keys = keys.astype(np.int64)  # the difference would not fit a narrow or unsigned type
            positions = keys - (self._low - 1)
            return pa.array(np.take(self._lookup, positions, mode="clip"))
        found = pl.DataFrame({"value": pl.from_arrow(values)}).join(
            self._frame, on="value", how="left", maintain_order="left", nulls_equal=False
        )
        is_null = pl.col("value").is_null()
        if found.schema["value"].is_float():
            is_null |= pl.col("value").is_nan()
        ids = found.select(pl.when(is_null).then(NULL).otherwise(pl.col("id").fill_null(UNSEEN)).cast(pl.Int32))
        return ids.to_series().to_arrow()

    def _lookup_array(self) -> np.ndarray | None:
        if len(self.values) == 0:
            return None
        keys = self.values.to_numpy().astype(np.int64)
        low, high = int(keys.min()), int(keys.max())
        if high - low >= _LOOKUP_ROWS or not -(2**30) < low <= high < 2**30:
            return None
        self._low = low
        lookup = np.full(high - low + 3, UNSEEN, dtype=np.int32)
        lookup[keys - low + 1] = np.arange(FIRST, FIRST + len(keys), dtype=np.int32)
        return lookup


def encode(array: pa.Array, encoder: Encoder) -> pa.Array:
    """Encode values; a list element by element, where a null list is an empty one."""
    if isinstance(array, pa.LargeListArray):
        array = array.cast(pa.list_(array.type.value_type))
    if not isinstance(array, pa.ListArray):
        return encoder(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), encoder(array.flatten()))
