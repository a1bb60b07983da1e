"""Groupby: aggregation of groups, bucket by bucket."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from recsys_cli.etl.filters.buckets import Runs, partition, write_run
from recsys_cli.etl.filters.flow import Flow, Mask, OpContext
from recsys_cli.etl.filters.order import group
from recsys_cli.features.columns import GROUP, POSITION, ROW_NUMBER, SIZE
from recsys_cli.features.spec import Spec
from recsys_cli.ops import Groupby
from recsys_cli.ops.groupby import Aggregation

OUT_ROWS = 500_000
"""Approximate number of input rows per batch of groups."""
_BINS = 1 << 16


def choose(op: Groupby, rows: Flow, context: OpContext) -> Flow:
    """Aggregate each group to one row."""
    rows = context.materialize(rows)
    schema = _schema(op, rows.schema())
    buckets = partition(rows, op.by, (*op.order_by, *op.aggs, ROW_NUMBER), context)
    rows.discard()
    bounds = _BatchBounds(rows.most or 0)
    runs = []
    num_groups = 0
    for number, groups in enumerate(buckets.map(partial(_grouped, op))):
        bounds.add(groups.get_column(POSITION).to_numpy(), groups.get_column(SIZE).to_numpy())
        num_groups += len(groups)
        if len(groups):
            path = context.folder / f"groups-{number:06d}.arrow"
            runs.append(write_run(groups.drop(SIZE).to_arrow().cast(schema), path))
    buckets.delete()
    return Grouped(Runs(tuple(runs), POSITION, schema), bounds.positions(), num_groups)


def _schema(op: Groupby, raw: pa.Schema) -> pa.Schema:
    specs = op.outputs({name: Spec(raw.field(name).type) for name in op.reads})
    outputs = [pa.field(name, spec.type) for name, spec in specs.items() if spec is not None]
    return pa.schema([*outputs, pa.field(ROW_NUMBER, pa.int64()), pa.field(POSITION, pa.int64())])


def _grouped(op: Groupby, rows: pa.Table) -> pl.DataFrame:
    """Return the groups, in the order of their first rows."""
    rows = rows.filter(pa.array(_has_key(op, rows)))
    groups = group(rows, op.by, op.order_by)
    frame = pl.DataFrame(rows.take(pa.array(groups.order)))
    columns = [name for name in op.aggs if name not in op.by and frame.schema[name].is_float()]
    frame = frame.with_columns(pl.col(name).fill_nan(None) for name in columns)
    frame = frame.with_columns(pl.Series(GROUP, groups.numbers).set_sorted())
    outputs = [_aggregated(column, how, descending=not op.ascending).alias(name) for name, column, how in op.made()]
    keys = [pl.col(name).first() for name in op.by]
    result = frame.group_by(GROUP).agg(*keys, *outputs, pl.col(ROW_NUMBER, POSITION).min(), pl.len().alias(SIZE))
    return result.drop(GROUP).sort(POSITION)


def _has_key(op: Groupby, rows: pa.Table) -> Mask:
    valid = np.ones(rows.num_rows, dtype=bool)
    for name in op.by:
        valid &= rows.column(name).is_valid().to_numpy()
    return valid


def _aggregated(column: str, how: Aggregation, *, descending: bool) -> pl.Expr:
    values = pl.col(column)
    if how == "list":
        return values.reverse() if descending else values
    if how == "count":
        return values.count().cast(pl.Int32)
    if how == "nunique":
        return values.drop_nulls().n_unique().cast(pl.Int32)
    if how in {"first", "last", "min", "max"}:
        same: pl.Expr = getattr(values, how)()
        return same
    calculated: pl.Expr = getattr(values.cast(pl.Float64), how)()
    return calculated


class _BatchBounds:
    """Bounds of batches of groups, with about OUT_ROWS input rows each."""

    def __init__(self, rows: int) -> None:
        self._width = rows // _BINS + 1
        self._rows = np.zeros(rows // self._width + 1, dtype=np.int64)

    def add(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.uint32]) -> None:
        """Count the rows of groups by the position of the first."""
        self._rows += np.bincount(positions // self._width, weights=sizes, minlength=len(self._rows)).astype(np.int64)

    def positions(self) -> tuple[int, ...]:
        bounds = [0]
        size = 0
        for position, rows in enumerate(self._rows.tolist()):
            if size and size + rows > OUT_ROWS:
                bounds.append(position * self._width)
                size = 0
            size += rows
        return (*bounds, len(self._rows) * self._width)


@dataclass(frozen=True)
class Grouped:
    """Aggregated groups, in the order of their first rows.

    Attributes:
        bounds: Bounds of the batches, as positions of first rows.
    """

    runs: Runs
    bounds: tuple[int, ...]
    most: int
    materialized: bool = True

    def schema(self) -> pa.Schema:
        """See `Flow.schema`."""
        schema = self.runs.schema
        return schema.remove(schema.get_field_index(POSITION))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """See `Flow.batches`."""
        names = self.schema().names if columns is None else list(columns)
        for low, high in itertools.pairwise(self.bounds):
            groups = self.runs.between(low, high)
            if groups.num_rows:
                yield groups.select(names)

    def discard(self) -> None:
        """See `Flow.discard`."""
        self.runs.delete()
