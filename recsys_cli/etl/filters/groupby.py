"""Groupby: groups are aggregated bucket by bucket, and come out in the order of their first rows."""

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
from recsys_cli.features.ops import Groupby
from recsys_cli.features.ops.groupby import Aggregation
from recsys_cli.features.spec import Spec

OUT_ROWS = 500_000
"""About how many rows of the input make a batch of groups."""
_BINS = 1 << 16


def choose(op: Groupby, rows: Flow, context: OpContext) -> Flow:
    """Make one row of each group."""
    rows = context.materialize(rows)
    schema = _schema(op, rows.schema())
    buckets = partition(rows, op.by, (*op.order_by, *op.aggs, ROW_NUMBER), context)
    rows.discard()
    cuts = _Cuts(rows.most or 0)
    runs = []
    groups = 0
    for number, made in enumerate(buckets.map(partial(_grouped, op))):
        cuts.add(made.get_column(POSITION).to_numpy(), made.get_column(SIZE).to_numpy())
        groups += len(made)
        if len(made):
            runs.append(
                write_run(made.drop(SIZE).to_arrow().cast(schema), context.folder / f"groups-{number:06d}.arrow")
            )
    buckets.delete()
    return Grouped(Runs(tuple(runs), POSITION, schema), cuts.bounds(), groups)


def _schema(op: Groupby, raw: pa.Schema) -> pa.Schema:
    specs = op.outputs({name: Spec(raw.field(name).type) for name in op.reads})
    made = [pa.field(name, spec.type) for name, spec in specs.items() if spec is not None]
    return pa.schema([*made, pa.field(ROW_NUMBER, pa.int64()), pa.field(POSITION, pa.int64())])


def _grouped(op: Groupby, rows: pa.Table) -> pl.DataFrame:
    """Return whole groups, in the order of their first rows."""
    rows = rows.filter(pa.array(_has_key(op, rows)))
    groups = group(rows, op.by, op.order_by)
    frame = pl.DataFrame(rows.take(pa.array(groups.order)))
    columns = [name for name in op.aggs if name not in op.by and frame.schema[name].is_float()]
    frame = frame.with_columns(pl.col(name).fill_nan(None) for name in columns)
    frame = frame.with_columns(pl.Series(GROUP, groups.numbers).set_sorted())
    made = [_aggregated(column, how, turned=not op.ascending).alias(name) for name, column, how in op.made()]
    keys = [pl.col(name).first() for name in op.by]
    whole = frame.group_by(GROUP).agg(*keys, *made, pl.col(ROW_NUMBER, POSITION).min(), pl.len().alias(SIZE))
    return whole.drop(GROUP).sort(POSITION)


def _has_key(op: Groupby, rows: pa.Table) -> Mask:
    there = np.ones(rows.num_rows, dtype=bool)
    for name in op.by:
        there &= rows.column(name).is_valid().to_numpy()
    return there


def _aggregated(column: str, how: Aggregation, *, turned: bool) -> pl.Expr:
    values = pl.col(column)
    if how == "list":
        return values.reverse() if turned else values
    if how == "count":
        return values.count().cast(pl.Int32)
    if how == "nunique":
        return values.drop_nulls().n_unique().cast(pl.Int32)
    if how in {"first", "last", "min", "max"}:
        same: pl.Expr = getattr(values, how)()
        return same
    calculated: pl.Expr = getattr(values.cast(pl.Float64), how)()
    return calculated


class _Cuts:
    """Where to cut groups, ordered by their first rows, so that no batch is made of much more than OUT_ROWS rows."""

    def __init__(self, rows: int) -> None:
        self._width = rows // _BINS + 1
        self._rows = np.zeros(rows // self._width + 1, dtype=np.int64)

    def add(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.uint32]) -> None:
        """Count the rows of groups by the position of the first."""
        self._rows += np.bincount(positions // self._width, weights=sizes, minlength=len(self._rows)).astype(np.int64)

    def bounds(self) -> tuple[int, ...]:
        """Return positions: the batches are between each and the next."""
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
    """Groups, in the order of their first rows.

    Attributes:
        runs: The groups by bucket.
        bounds: Positions of first rows at which batches are cut.
        most: How many groups there are.
    """

    runs: Runs
    bounds: tuple[int, ...]
    most: int
    materialized: bool = True

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        schema = self.runs.schema
        return schema.remove(schema.get_field_index(POSITION))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the groups, or some of their columns."""
        names = self.schema().names if columns is None else list(columns)
        for low, high in itertools.pairwise(self.bounds):
            found = self.runs.between(low, high)
            if found.num_rows:
                yield found.select(names)

    def discard(self) -> None:
        """Delete the scratch files that the groups come from."""
        self.runs.delete()
