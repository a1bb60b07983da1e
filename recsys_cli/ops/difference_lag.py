"""Difference to an earlier interaction of the same user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.events import Message
from recsys_cli.features.columns import GROUP, POSITION
from recsys_cli.features.spec import Spec
from recsys_cli.ops.buckets import Runs, group, partition, write_run
from recsys_cli.ops.flow import Derived, Flow, OpContext
from recsys_cli.ops.op import Names, Op, Phase, as_tuple, numbers, scalars
from recsys_cli.packages import np, pa, pl

_UNITS = {"ms": 1e3, "us": 1e6, "ns": 1e9}


class DifferenceLag(Op):
    """Compute the difference to an earlier row of the same group, such as the time since the user's last interaction.

    Rows of a group, equal in all columns of `by`, follow `order_by` (nulls last), then the order of the input. The
    difference is the value minus the value `shift` rows before; a negative shift reads future rows and raises a warning.
    Computed on the whole input before the split, so that held-out rows see earlier rows; with split.method=files, on each
    split on its own.
    Nulls: null without such a row, for a null or NaN value on either side, and for a null or NaN in `by`.
    Lists: refused.
    Fitted: nothing.
    Output: `<column>_difference_lag_<shift>`, float64, written as float32 with NaN for null. Integers are subtracted
    exactly; dates and timestamps give seconds.
    """

    phase: ClassVar[Phase] = "rows"

    op: Literal["DifferenceLag"] = "DifferenceLag"
    columns: Annotated[Names, Field(min_length=1)]
    """Columns to subtract: numbers, dates or timestamps."""
    by: Annotated[Names, Field(min_length=1)]
    """Group columns, such as the user (NVTabular: `partition_cols`)."""
    order_by: Names = ()
    """Columns that order a group, most important first, such as the timestamp."""
    shift: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = Field((1,), min_length=1)
    """Number of rows back; one or several, each with its own output column."""

    @field_validator("shift")
    @classmethod
    def _is_shift(cls, shifts: tuple[int, ...]) -> tuple[int, ...]:
        if 0 in shifts:
            raise ValueError("a shift of 0 would subtract each row from itself")
        return shifts

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns, the group and its order."""
        return tuple(dict.fromkeys((*self.columns, *self.by, *self.order_by)))

    def output(self, column: str, shift: int) -> str:
        """Return the name of an output column."""
        return f"{column}_difference_lag_{shift}"

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the differences."""
        scalars(inputs)
        for name in self.columns:
            spec = inputs[name]
            if spec.categorical or not (pa.types.is_timestamp(spec.element) or pa.types.is_date(spec.element)):
                numbers({name: spec})
        made = [self.output(name, shift) for name in self.columns for shift in self.shift]
        if len(set(made)) < len(made):
            raise ConfigError("a column or a shift is repeated; name each once")
        return {name: Spec(pa.float64()) for name in made}

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Add the differences, bucket by bucket."""
        if min(self.shift) < 0:
            context.emit(
                Message(
                    f"{self.name} of {', '.join(self.columns)} with shift {min(self.shift)} uses later rows: a leak",
                    "warning",
                )
            )
        rows = context.materialize(rows)
        buckets = partition(rows, self.by, (*self.order_by, *self.columns), context)
        runs = []
        for number, differences in enumerate(buckets.map(self._differences)):
            runs.append(write_run(differences, context.folder / f"lag-{number:06d}.arrow"))
        buckets.delete()
        outputs = [pa.field(self.output(name, shift), pa.float64()) for name in self.columns for shift in self.shift]
        return Lagged(rows, Runs(tuple(runs), POSITION, pa.schema([pa.field(POSITION, pa.int64()), *outputs])))

    def _differences(self, rows: pa.Table) -> pa.Table:
        """Return the differences of complete groups, ordered by position."""
        groups = group(rows, self.by, self.order_by)
        frame = pl.DataFrame(rows.take(pa.array(groups.order)))
        frame = frame.with_columns(pl.Series(GROUP, groups.numbers))
        grouped = pl.all_horizontal(pl.col(name).is_not_null() for name in self.by)
        differences = [
            pl.when(grouped & (pl.col(GROUP) == pl.col(GROUP).shift(shift)))
            .then(_less(name, frame.schema[name], shift))
            .alias(self.output(name, shift))
            for name in self.columns
            for shift in self.shift
        ]
        inverse = np.empty(rows.num_rows, dtype=np.int64)
        inverse[groups.order] = np.arange(rows.num_rows)
        return frame.select(POSITION, *differences).to_arrow().take(pa.array(inverse))


def _less(name: str, kind: pl.DataType, shift: int) -> pl.Expr:
    """Return the difference to the value `shift` rows before; in seconds for times."""
    values = pl.col(name)
    if kind.is_integer() or kind.is_temporal() or kind == pl.Boolean:
        values = (values.to_physical() if kind.is_temporal() else values).cast(pl.Int128)  # exact for uint64 too
        difference = (values - values.shift(shift)).cast(pl.Float64)
        if kind == pl.Date:
            return difference * 86400.0
        return difference / _UNITS[kind.time_unit] if isinstance(kind, pl.Datetime) else difference
    values = values.cast(pl.Float64).fill_nan(None)
    return values - values.shift(shift)


@dataclass(frozen=True)
class Lagged(Derived):
    """Rows with additional columns of differences."""

    rows: Flow
    runs: Runs
    materialized: bool = True

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
