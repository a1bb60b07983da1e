"""DifferenceLag: groups are ordered bucket by bucket, and the differences are brought back to the rows' own order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.filters.buckets import Runs, partition, write_run
from recsys_cli.etl.filters.flow import Flow, OpContext
from recsys_cli.etl.filters.order import group
from recsys_cli.events import Message
from recsys_cli.features.columns import GROUP, POSITION
from recsys_cli.features.ops import DifferenceLag

_EXACT = 2.0**62
_UNITS = {"ms": 1e3, "us": 1e6, "ns": 1e9}


def choose(op: DifferenceLag, rows: Flow, context: OpContext) -> Flow:
    """Add the differences."""
    if min(op.shift) < 0:
        context.emit(
            Message(f"{op.name} of {', '.join(op.columns)} by {min(op.shift)} looks at later rows: a leak", "warning")
        )
    rows = context.materialize(rows)
    buckets = partition(rows, op.by, (*op.order_by, *op.columns), context)
    runs = []
    for number, differences in enumerate(buckets.map(partial(_differences, op))):
        runs.append(write_run(differences, context.folder / f"lag-{number:06d}.arrow"))
    buckets.delete()
    made = [pa.field(op.output(name, shift), pa.float64()) for name in op.columns for shift in op.shift]
    return Lagged(rows, Runs(tuple(runs), POSITION, pa.schema([pa.field(POSITION, pa.int64()), *made])))


def _differences(op: DifferenceLag, rows: pa.Table) -> pa.Table:
    """Return the differences of whole groups, in the order of their positions."""
    groups = group(rows, op.by, op.order_by)
    frame = pl.DataFrame(rows.take(pa.array(groups.order)))
    frame = frame.with_columns(pl.Series(GROUP, groups.numbers))
    grouped = pl.all_horizontal(pl.col(name).is_not_null() for name in op.by)
    found = [
        pl.when(grouped & (pl.col(GROUP) == pl.col(GROUP).shift(shift)))
        .then(_less(name, frame.schema[name], shift))
        .alias(op.output(name, shift))
        for name in op.columns
        for shift in op.shift
    ]
    back = np.empty(rows.num_rows, dtype=np.int64)
    back[groups.order] = np.arange(rows.num_rows)
    return frame.select(POSITION, *found).to_arrow().take(pa.array(back))


def _less(name: str, kind: pl.DataType, shift: int) -> pl.Expr:
    """Return a column less itself some rows before, in seconds where it holds times."""
    values = pl.col(name)
    if kind == pl.Date:
        return _less_whole(values.cast(pl.Int64), shift) * 86400.0
    if isinstance(kind, pl.Datetime):
        return _less_whole(values.cast(pl.Int64), shift) / _UNITS[kind.time_unit]
    if kind == pl.UInt64:
        values = values.reinterpret(signed=True)  # subtraction goes around at 64 bits, whatever their sign
        return _less_whole(values, shift, about=pl.col(name).cast(pl.Float64))
    if kind.is_integer() or kind == pl.Boolean:
        return _less_whole(values.cast(pl.Int64), shift)
    values = values.cast(pl.Float64).fill_nan(None)
    return values - values.shift(shift)


def _less_whole(values: pl.Expr, shift: int, *, about: pl.Expr | None = None) -> pl.Expr:
    """Subtract as int64 where the difference fits it, which float64 could not do exactly."""
    near = values.cast(pl.Float64) if about is None else about
    rough = near - near.shift(shift)
    return pl.when(rough.abs() < _EXACT).then((values - values.shift(shift)).cast(pl.Float64)).otherwise(rough)


@dataclass(frozen=True)
class Lagged:
    """Rows with the differences beside them."""

    rows: Flow
    runs: Runs
    materialized: bool = True

    @property
    def most(self) -> int | None:
        """How many rows there are at most."""
        return self.rows.most

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self._with(self.rows.schema().empty_table(), self.runs.schema.empty_table()).schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns."""
        made = set(self.runs.schema.names)
        before = None if columns is None else [name for name in columns if name not in made]
        first = 0
        # A batch has to have a column, so that its rows can be counted.
        for batch in self.rows.batches(before or None):
            found = self.runs.between(first, first + batch.num_rows)
            first += batch.num_rows
            rows = self._with(batch, found)
            yield rows if columns is None else rows.select(list(columns))

    def discard(self) -> None:
        """Delete the scratch files that the rows come from."""
        self.rows.discard()
        self.runs.delete()

    def _with(self, rows: pa.Table, found: pa.Table) -> pa.Table:
        for name in found.column_names:
            if name in rows.column_names:
                rows = rows.drop_columns([name])
            if name != POSITION:
                rows = rows.append_column(name, found.column(name))
        return rows
