"""ListSlice on Polars."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.ops import ListSlice


def apply(op: ListSlice, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - stateless op
    """Slice, and optionally pad, the lists."""
    types = frame.select(op.columns).collect_schema()
    return frame.with_columns(_sliced(op, column, kind.inner) for column, kind in types.items())  # type: ignore[attr-defined]


def _sliced(op: ListSlice, column: str, element: pl.DataType) -> pl.Expr:
    kind = pl.List(element)
    lists = pl.col(column).cast(kind).fill_null(pl.lit([], dtype=kind))
    first, last = op.bounds
    length = lists.list.len().cast(pl.Int64)
    start = _clamped(first, length)
    end = length if last is None else _clamped(last, length)
    cut = lists.list.slice(start, (end - start).clip(0))
    # Concatenation even without padding: in Polars 1.36 a slice of an empty column loses its type.
    padding = pl.lit([op.pad_value] * (op.size or 0) if op.pad else [], dtype=kind)
    filled = pl.concat_list(cut, padding)
    return (filled.list.head(op.size) if op.pad and op.size else filled).alias(column)


def _clamped(position: int, length: pl.Expr) -> pl.Expr:
    if position < 0:
        return (length + position).clip(0)
    return pl.min_horizontal(length, pl.lit(position, pl.Int64))
