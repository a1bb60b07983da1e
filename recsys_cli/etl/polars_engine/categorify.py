"""Categorify on Polars: count, order, and encode. Whole numbers in a narrow range are encoded by a lookup array."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.etl.join_keys import keyed
from recsys_cli.features.ops import JoinExternal
from recsys_cli.features.schema import FIRST, NULL, UNSEEN

_LOOKUP_ROWS = 1 << 24
"""Widest range of whole numbers that is encoded by a lookup array (64 MB); a wider one by a hash join."""


def count_values(frame: pl.LazyFrame, column: str, *, rows: int) -> pl.DataFrame:
    """Count each distinct value of a column of the interactions, as `value` and `count`; lists by element.

    Raises:
        DataError: The counts do not add up to the rows: the query engine has lost some.
    """
    values = frame.select(pl.col(column).alias("value"))
    is_list = isinstance(values.collect_schema()["value"], pl.List)
    if is_list:
        values = values.explode("value", empty_as_null=False)
    counts = values.group_by("value").agg(pl.len().cast(pl.Int64).alias("count")).collect(engine="streaming")
    if not is_list and counts.get_column("count").sum() != rows:
        raise DataError(f"counting {column} gave {counts.get_column('count').sum()} rows instead of {rows}")
    return counts


def count_joined(counts: pl.DataFrame, op: JoinExternal, table: pa.Table, column: str) -> pl.DataFrame:
    """Count a joined column over the interactions, as if joined: a row of the table weighs as often as its key comes.

    Args:
        counts: How often each key comes, as `count_values` gives it.
        op: The join.
        table: What is joined.
        column: One of its columns.
    """
    by_key = counts.rename({"value": op.on})
    key_type = pl.Series(dtype=by_key.schema[op.on]).to_arrow().type
    joined = by_key.join(pl.DataFrame(keyed(op, table, key_type)), on=op.on, how="inner", maintain_order="left")
    weighted = joined.select(pl.col(column).alias("value"), "count")
    if isinstance(weighted.schema["value"], pl.List):
        weighted = weighted.explode("value", empty_as_null=False)
    return weighted.group_by("value", maintain_order=True).agg(pl.col("count").sum())


def vocabulary(counts: pl.DataFrame) -> pa.Table:
    """Order counted values by (count descending, value ascending); null is no value, and neither is NaN."""
    known = counts.filter(pl.col("value").is_not_null())
    if known.schema["value"].is_float():
        value = pl.col("value")
        known = known.filter(value.is_not_nan()).with_columns(_one_zero(value).alias("value"))
    table = known.sort("count", "value", descending=[True, False]).select("value", "count").to_arrow()
    plain = (
        pa.string() if pa.types.is_large_string(table.schema.field("value").type) else table.schema.field("value").type
    )
    return table.cast(pa.schema([("value", plain), ("count", pa.int64())])).combine_chunks()


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


def encode(column: pa.ChunkedArray, encoder: Encoder) -> pa.Array:
    """Encode a column; a list element by element, where a null list is an empty one."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.LargeListArray):
        array = array.cast(pa.list_(array.type.value_type))
    if not isinstance(array, pa.ListArray):
        return encoder(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), encoder(array.flatten()))


def _one_zero(value: pl.Expr) -> pl.Expr:
    """Make 0.0 of -0.0: they are one value, and which of them stands for it must not depend on the order of the rows."""
    return pl.when(value == 0).then(0.0).otherwise(value)
