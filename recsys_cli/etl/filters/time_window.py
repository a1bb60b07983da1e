"""TimeWindow: comparison with exact bounds in the unit of the column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa

from recsys_cli.etl.filters.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.ops import TimeWindow

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def choose(op: TimeWindow, rows: Flow, context: OpContext) -> Flow:
    """Keep the rows of the window."""
    unit = _per_second(rows.schema().field(op.column).type)
    first = None if op.first is None else op.first * unit
    end = None if op.end is None else op.end * unit
    window = _Window(first, end)
    if op.length is None:
        return filter_rows(rows, partial(_keep, op.column, window), context.keeps)
    rows = context.materialize(rows)
    newest = _newest(rows, op.column, window)
    after = None if newest is None else newest - op.length * unit
    return filter_rows(rows, partial(_keep, op.column, _Window(first, end, after)), context.keeps)


@dataclass(frozen=True)
class _Window:
    """Bounds in the unit of the column: time >= first, time < end, time > after; None for no bound."""

    first: Fraction | None
    end: Fraction | None
    after: Fraction | None = None

    def contains(self, times: np.ndarray) -> Mask:
        """Return a mask of the times inside; False for NaN."""
        inside = ~np.isnan(times) if times.dtype.kind == "f" else np.ones(len(times), dtype=bool)
        whole = times.dtype.kind == "i"
        with np.errstate(invalid="ignore"):
            if self.first is not None:
                inside &= times >= (_whole(math.ceil(self.first)) if whole else float(self.first))
            if self.end is not None:
                inside &= times < (_whole(math.ceil(self.end)) if whole else float(self.end))
            if self.after is not None:
                inside &= times > (_whole(math.floor(self.after)) if whole else float(self.after))
        return inside


def _whole(bound: int) -> int:
    return max(-(2**63), min(2**63 - 1, bound))


def _per_second(kind: pa.DataType) -> Fraction:
    if pa.types.is_timestamp(kind):
        return Fraction(_TICKS[kind.unit])
    if pa.types.is_date32(kind):
        return Fraction(1, 86400)
    return Fraction(_TICKS["ms"] if pa.types.is_date64(kind) else 1)


def _times(values: pa.ChunkedArray) -> tuple[np.ndarray, Mask]:
    """Return times (int64, or float64 for other numeric types) and the mask of valid ones."""
    kind = values.type
    valid = values.is_valid().to_numpy()
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        values = values.cast(pa.int64())
    elif not pa.types.is_integer(kind) or kind == pa.uint64():
        values = values.cast(pa.float64())
    zero = pa.scalar(0, values.type)
    times = values.fill_null(zero).to_numpy()
    return (times if times.dtype == np.float64 else times.astype(np.int64)), valid


def _keep(column: str, window: _Window, batch: pa.Table) -> Mask:
    times, valid = _times(batch.column(column))
    return valid & window.contains(times)


def _newest(rows: Flow, column: str, window: _Window) -> Fraction | None:
    newest: Fraction | None = None
    for batch in rows.batches([column]):
        times, valid = _times(batch.column(column))
        times = times[valid & window.contains(times) & np.isfinite(times)]
        if len(times):
            latest = Fraction(times.max().item())
            newest = latest if newest is None else max(newest, latest)
    return newest
