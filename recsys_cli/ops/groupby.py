"""One row per user or session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import GROUP, POSITION, ROW_NUMBER, SIZE
from recsys_cli.features.spec import Spec
from recsys_cli.ops.buckets import Runs, group, partition, write_run
from recsys_cli.ops.flow import Flow, Mask, OpContext
from recsys_cli.ops.op import FrozenDict, Names, Op, Phase, as_tuple, numbers, scalars
from recsys_cli.packages import np, npt, pa, pl

Aggregation = Literal["list", "first", "last", "count", "nunique", "sum", "mean", "median", "std", "var", "min", "max"]
CALCULATED: tuple[Aggregation, ...] = ("sum", "mean", "median", "std", "var")
COUNTED: tuple[Aggregation, ...] = ("count", "nunique")
OUT_ROWS = 500_000
"""Approximate number of input rows per batch of groups."""
_BINS = 1 << 16


class Groupby(Op):
    """Aggregate the interactions of a user or a session to one row: item lists, first and last values, counts, means.

    Rows of a group, equal in all columns of `by`, follow `order_by` (nulls last), then the order of the input. The whole
    input is grouped before the split; with split.method=files, each split on its own. Groups follow their first row in
    the input. Only the columns of `by` and the aggregations remain; list those of `by` that are no features in `drop`.
    Nulls: rows with a null or NaN in `by` are dropped, as in pandas and NVTabular. `list`, `first` and `last` keep nulls;
    the others skip them: without values `count`, `nunique` and `sum` are 0, the rest null. `std` and `var` have ddof 1:
    null for one value, 0 for a constant.
    Lists: cannot be aggregated.
    Fitted: nothing; a later Categorify encodes lists by element.
    Output: `<column>_<aggregation>`. `list`, `first`, `last`, `min` and `max` have the type of the column; `count` and
    `nunique` are int32; the rest float64, written as float32.
    """

    phase: ClassVar[Phase] = "rows"
    replaces: ClassVar[bool] = True

    op: Literal["Groupby"] = "Groupby"
    by: Annotated[Names, Field(min_length=1)]
    """Group columns (NVTabular: `groupby_cols`)."""
    aggs: dict[str, Annotated[tuple[Aggregation, ...], BeforeValidator(as_tuple)]] = Field(min_length=1)
    """Aggregations by column: list, first, last, count, nunique, sum, mean, median, std, var, min, max."""
    order_by: Names = ()
    """Columns that order a group, most important first, such as the timestamp (NVTabular: `sort_cols`)."""
    name_sep: str = "_"
    """Separator between column and aggregation in output names."""
    ascending: bool = True
    """False reverses the lists, newest first; `first` stays the earliest, as in NVTabular."""

    @field_validator("aggs")
    @classmethod
    def _frozen(cls, aggs: dict[str, tuple[Aggregation, ...]]) -> dict[str, tuple[Aggregation, ...]]:
        return FrozenDict(aggs)

    @property
    def reads(self) -> tuple[str, ...]:
        """The group, its order, and the columns to aggregate."""
        return tuple(dict.fromkeys((*self.by, *self.order_by, *self.aggs)))

    def made(self) -> Iterator[tuple[str, str, Aggregation]]:
        """Yield output name, input column and aggregation."""
        for column, aggregations in self.aggs.items():
            for aggregation in aggregations:
                yield f"{column}{self.name_sep}{aggregation}", column, aggregation

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the group columns and the aggregations."""
        scalars(inputs)
        described: dict[str, Spec | None] = {name: replace(inputs[name], type=inputs[name].element) for name in self.by}
        for name, column, aggregation in self.made():
            if name in described:
                raise ConfigError(f"the output {name!r} is repeated; choose another name_sep")
            described[name] = _spec_of(column, inputs[column], aggregation)
        return described

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Aggregate each group to one row, bucket by bucket."""
        rows = context.materialize(rows)
        schema = self._schema(rows.schema())
        buckets = partition(rows, self.by, (*self.order_by, *self.aggs, ROW_NUMBER), context)
        rows.discard()
        bounds = _BatchBounds(rows.most or 0)
        runs = []
        num_groups = 0
        for number, groups in enumerate(buckets.map(self._grouped)):
            bounds.add(groups.get_column(POSITION).to_numpy(), groups.get_column(SIZE).to_numpy())
            num_groups += len(groups)
            if len(groups):
                path = context.folder / f"groups-{number:06d}.arrow"
                runs.append(write_run(groups.drop(SIZE).to_arrow().cast(schema), path))
        buckets.delete()
        return Grouped(Runs(tuple(runs), POSITION, schema), bounds.positions(), num_groups)

    def _schema(self, raw: pa.Schema) -> pa.Schema:
        specs = self.outputs({name: Spec(raw.field(name).type) for name in self.reads})
        outputs = [pa.field(name, spec.type) for name, spec in specs.items() if spec is not None]
        return pa.schema([*outputs, pa.field(ROW_NUMBER, pa.int64()), pa.field(POSITION, pa.int64())])

    def _grouped(self, rows: pa.Table) -> pl.DataFrame:
        """Return the groups, in the order of their first rows."""
        rows = rows.filter(pa.array(self._has_key(rows)))
        groups = group(rows, self.by, self.order_by)
        frame = pl.DataFrame(rows.take(pa.array(groups.order)))
        columns = [name for name in self.aggs if name not in self.by and frame.schema[name].is_float()]
        frame = frame.with_columns(pl.col(name).fill_nan(None) for name in columns)
        frame = frame.with_columns(pl.Series(GROUP, groups.numbers).set_sorted())
        outputs = [
            _aggregated(column, how, descending=not self.ascending).alias(name) for name, column, how in self.made()
        ]
        keys = [pl.col(name).first() for name in self.by]
        result = frame.group_by(GROUP).agg(*keys, *outputs, pl.col(ROW_NUMBER, POSITION).min(), pl.len().alias(SIZE))
        return result.drop(GROUP).sort(POSITION)

    def _has_key(self, rows: pa.Table) -> Mask:
        valid = np.ones(rows.num_rows, dtype=bool)
        for name in self.by:
            valid &= rows.column(name).is_valid().to_numpy()
        return valid


def _spec_of(column: str, spec: Spec, aggregation: Aggregation) -> Spec:
    if aggregation in CALCULATED:
        numbers({column: spec})
        return Spec(pa.float64())
    if aggregation in COUNTED:
        return Spec(pa.int32(), dtype="int32")
    return replace(spec, type=pa.list_(spec.element) if aggregation == "list" else spec.element)


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
