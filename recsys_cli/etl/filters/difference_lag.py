"""DifferenceLag: differences within ordered groups, bucket by bucket."""

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
from recsys_cli.ops import DifferenceLag

_EXACT = 2.0**62
_UNITS = {"ms": 1e3, "us": 1e6, "ns": 1e9}


def choose(op: DifferenceLag, rows: Flow, context: OpContext) -> Flow:
    """Add the differences."""
    if min(op.shift) < 0:
        context.emit(
            Message(
                f"{op.name} of {', '.join(op.columns)} with shift {min(op.shift)} uses later rows: a leak", "warning"
            )
        )
    rows = context.materialize(rows)
    buckets = partition(rows, op.by, (*op.order_by, *op.columns), context)
    runs = []
    for number, differences in enumerate(buckets.map(partial(_differences, op))):
        runs.append(write_run(differences, context.folder / f"lag-{number:06d}.arrow"))
    buckets.delete()
    outputs = [pa.field(op.output(name, shift), pa.float64()) for name in op.columns for shift in op.shift]
    return Lagged(rows, Runs(tuple(runs), POSITION, pa.schema([pa.field(POSITION, pa.int64()), *outputs])))


def _differences(op: DifferenceLag, rows: pa.Table) -> pa.Table:
    """Return the differences of complete groups, ordered by position."""
    groups = group(rows, op.by, op.order_by)
    frame = pl.DataFrame(rows.take(pa.array(groups.order)))
    frame = frame.with_columns(pl.Series(GROUP, groups.numbers))
    grouped = pl.all_horizontal(pl.col(name).is_not_null() for name in op.by)
    differences = [
        pl.when(grouped & (pl.col(GROUP) == pl.col(GROUP).shift(shift)))
        .then(_less(name, frame.schema[name], shift))
        .alias(op.output(name, shift))
        for name in op.columns
        for shift in op.shift
    ]
    inverse = np.empty(rows.num_rows, dtype=np.int64)
    inverse[groups.order] = np.arange(rows.num_rows)
    return frame.select(POSITION, *differences).to_arrow().take(pa.array(inverse))


def _less(name: str, kind: pl.DataType, shift: int) -> pl.Expr:
    """Return the difference to the value `shift` rows before; in seconds for times."""
    values = pl.col(name)
    if kind == pl.Date:
        return _less_whole(values.cast(pl.Int64), shift) * 86400.0
    if isinstance(kind, pl.Datetime):
        return _less_whole(values.cast(pl.Int64), shift) / _UNITS[kind.time_unit]
    if kind == pl.UInt64:
        values = values.reinterpret(signed=True)  # subtraction modulo 2^64 is the same for both signs
        return _less_whole(values, shift, about=pl.col(name).cast(pl.Float64))
    if kind.is_integer() or kind == pl.Boolean:
        return _less_whole(values.cast(pl.Int64), shift)
    values = values.cast(pl.Float64).fill_nan(None)
    return values - values.shift(shift)


def _less_whole(values: pl.Expr, shift: int, *, about: pl.Expr | None = None) -> pl.Expr:
    """Return the difference: int64 without overflow, else float64."""
    near = values.cast(pl.Float64) if about is None else about
    rough = near - near.shift(shift)
    return pl.when(rough.abs() < _EXACT).then((values - values.shift(shift)).cast(pl.Float64)).otherwise(rough)


@dataclass(frozen=True)
class Lagged:
    """Rows with additional columns of differences."""

    rows: Flow
    runs: Runs
    materialized: bool = True

    @property
    def most(self) -> int | None:
        """See `Flow.most`."""
        return self.rows.most

    def schema(self) -> pa.Schema:
        """See `Flow.schema`."""
        return self._with(self.rows.schema().empty_table(), self.runs.schema.empty_table()).schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """See `Flow.batches`."""
        outputs = set(self.runs.schema.names)
        inputs = None if columns is None else [name for name in columns if name not in outputs]
        first = 0
        # At least one column, because a batch without columns has no number of rows.
        for batch in self.rows.batches(inputs or None):
            differences = self.runs.between(first, first + batch.num_rows)
            first += batch.num_rows
            rows = self._with(batch, differences)
            yield rows if columns is None else rows.select(list(columns))

    def discard(self) -> None:
        """See `Flow.discard`."""
        self.rows.discard()
        self.runs.delete()

    def _with(self, rows: pa.Table, differences: pa.Table) -> pa.Table:
        for name in differences.column_names:
            if name in rows.column_names:
                rows = rows.drop_columns([name])
            if name != POSITION:
                rows = rows.append_column(name, differences.column(name))
        return rows
