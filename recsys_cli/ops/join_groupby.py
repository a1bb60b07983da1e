"""Statistics of the group of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import Field

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.spec import Spec
from recsys_cli.ops.grouping import (
    Group,
    GroupOp,
    check_groups,
    fitted_table,
    in_key_order,
    join_by_key,
    key_names,
    keys_of,
    lookup,
    members,
    name_of,
    stacked,
)
from recsys_cli.ops.op import Tables, numbers, scalars
from recsys_cli.ops.values import Array
from recsys_cli.packages import np, pa, pl

if TYPE_CHECKING:
    Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

_WEIGHT = "weight"
_INT32 = 2**31 - 1
Statistic = Literal["count", "sum", "mean", "std", "var", "min", "max"]


class JoinGroupby(GroupOp):
    """Add statistics of each row's group: its count in train, and aggregates of numeric columns.

    Fitted: the statistics of each group over train. `count` is the number of rows; the others aggregate a column of
    `cont_cols` without null and NaN. `std` and `var` have ddof 1: null for one value, 0 for a constant. Without values the
    sum is 0, the rest null. With an infinite value a statistic is infinite, or null if undefined.
    Nulls: null or NaN in a group column is a group of its own. A group absent from train has count 0, the rest null.
    Encoded ids and raw values can be grouped.
    Lists: refused.
    Output: `<columns>_count` (int32) and `<columns>_<cont_col>_<statistic>` (float32), next to the inputs. If all inputs
    belong to one joined table, so do the outputs, and each row counts with its number of train interactions. Otherwise
    they belong to the interactions, and new rows need no `cont_cols`.
    A statistic of the label contains the row's own label and is refused: TargetEncoding is out of fold.
    NVTabular 23.08: differs in four points. Here rows with a null are counted, means ignore missing values, variances
    of large values stay exact, and groups absent from train raise no error.
    """

    op: Literal["JoinGroupby"] = "JoinGroupby"
    columns: tuple[Group, ...] = Field(min_length=1)
    """Columns to group by; a nested list is one group by a combination."""
    cont_cols: tuple[str, ...] = ()
    """Numeric columns to aggregate."""
    stats: tuple[Statistic, ...] = Field(default=("count",), min_length=1)
    """Statistics of each group."""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns to aggregate."""
        return self.cont_cols

    @property
    def described(self) -> tuple[Statistic, ...]:
        """The aggregates: all statistics except the count."""
        return tuple(stat for stat in self.stats if stat != "count")

    def written(self, group: Group) -> dict[str, str]:
        """Return the output names of a group, by statistic in the group's table."""
        name = name_of(group)
        names = {"count": f"{name}_count"} if "count" in self.stats else {}
        for position, column in enumerate(self.cont_cols):
            names |= {f"{stat}{position}": f"{name}_{column}_{stat}" for stat in self.described}
        return names

    def exposed(self, output: str) -> tuple[str, ...]:
        """Return the group columns, and the aggregated column of a statistic."""
        group = next(group for group in self.columns if output in self.written(group).values())
        start = f"{name_of(group)}_"
        return (*members(group), *(c for c in self.cont_cols if output in {f"{start}{c}_{s}" for s in self.described}))

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the statistics."""
        if bool(self.described) != bool(self.cont_cols):
            raise ConfigError("stats other than count need cont_cols, and cont_cols needs them; set both or neither")
        scalars(inputs)
        numbers({name: inputs[name] for name in self.cont_cols})
        described: dict[str, Spec | None] = {}
        for group in self.columns:
            for stat, name in self.written(group).items():
                described[name] = Spec(pa.int64(), dtype="int32") if stat == "count" else Spec(pa.float64())
        names = [name for group in self.columns for name in self.written(group).values()]
        check_groups(self.columns, names)
        check_groups((), self.learns)
        return described

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute `rows` by key, and per column `num0`, `sum0`, `mean0`, `square0`, `min0`, `max0`.

        `square` is the sum of squared deviations from the mean, numerically stable unlike a sum of squares.
        """
        values = [
            pl.col(name).cast(pl.Float64).fill_nan(None).alias(f"x{at}") for at, name in enumerate(self.cont_cols)
        ]
        queries = {}
        for group in self.columns:
            keys = keys_of(group, frame)
            rows = frame.select([*keys, *values, weight.alias(_WEIGHT)]).filter(pl.col(_WEIGHT) > 0)
            queries[name_of(group)] = _moments(rows, [key.meta.output_name() for key in keys], range(len(values)))
        return queries

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge the moments by group (Chan, Golub and LeVeque, 1979), in order of first appearance."""
        return parts[0] if len(parts) == 1 else _merged(stacked(parts))

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the configured statistics by group."""
        state = {}
        for name in self.learns:
            table = in_key_order(stacked([merged[name]]))
            if "count" in self.stats and table.height and int(table.get_column("rows").max()) > _INT32:  # type: ignore[arg-type]
                raise DataError(
                    f"JoinGroupby: a group of {name} has more than {_INT32} rows", hint="remove count from its stats"
                )
            statistics = [pl.col("rows").alias("count")] if "count" in self.stats else []
            statistics += [_statistic(stat, at) for at in range(len(self.cont_cols)) for stat in self.described]
            state[name] = fitted_table(table.select(*key_names(table), *statistics))
        return state

    def statistics(self, group: Group, table: pa.Table, state: Tables) -> dict[str, Array]:
        """Return the statistics of a group; those of a group absent from train are count 0, else NaN."""
        statistics = {}
        for statistic, name in self.written(group).items():
            values = lookup(table, statistic)
            statistics[name] = np.nan_to_num(values).astype(np.int64) if statistic == "count" else values
        return statistics

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Join the statistics of each row's group."""
        for group in self.columns:
            names = self.written(group)
            frame = join_by_key(frame, keys_of(group, frame), state[name_of(group)], names)
            if "count" in names:
                frame = frame.with_columns(pl.col(names["count"]).fill_null(0))
        return frame


def _moments(rows: pl.LazyFrame, keys: Sequence[str], positions: Sequence[int]) -> pl.LazyFrame:
    # Materialized columns first: Polars sums columns many times faster than expressions within a group-by.
    weight = pl.col(_WEIGHT)
    rows = rows.with_columns(
        column
        for at in positions
        for column in (
            pl.when(pl.col(f"x{at}").is_not_null()).then(weight).otherwise(0).alias(f"w{at}"),
            (pl.col(f"x{at}") * weight).alias(f"s{at}"),
        )
    )
    totals = [weight.sum().alias("rows")]
    for at in positions:
        totals += [pl.col(f"w{at}").sum().alias(f"num{at}"), pl.col(f"s{at}").sum().alias(f"sum{at}")]
        totals += [pl.col(f"x{at}").min().alias(f"min{at}"), pl.col(f"x{at}").max().alias(f"max{at}")]
    means = [(pl.col(f"sum{at}") / pl.col(f"num{at}")).alias(f"mean{at}") for at in positions]
    first = rows.group_by(keys, maintain_order=True).agg(totals).with_columns(means)
    if not positions:
        return first
    differences = [pl.col(f"x{at}") - pl.col(f"mean{at}") for at in positions]
    of_group = first.select(*keys, *(f"mean{at}" for at in positions))
    deviations = rows.join(of_group, on=keys, how="left", nulls_equal=True, maintain_order="left").select(
        *keys,
        *((difference * pl.col(f"w{at}")).alias(f"rest{at}") for at, difference in enumerate(differences)),
        *((difference**2 * pl.col(f"w{at}")).alias(f"square{at}") for at, difference in enumerate(differences)),
    )
    return _corrected_by_group(first, deviations, keys, positions)


def _merged(rows: pl.DataFrame) -> pa.Table:
    keys = key_names(rows)
    positions = [name.removeprefix("num") for name in rows.columns if name.startswith("num")]
    added = ["rows", *(f"{name}{position}" for position in positions for name in ("num", "sum", "part"))]
    rows = rows.with_columns(
        (pl.col(f"mean{position}") * pl.col(f"num{position}")).alias(f"part{position}") for position in positions
    )
    totals = [pl.col(name).sum() for name in added]
    totals += [
        limit for position in positions for limit in (pl.col(f"min{position}").min(), pl.col(f"max{position}").max())
    ]
    whole = rows.group_by(keys, maintain_order=True).agg(totals)
    if not positions:
        return whole.to_arrow()
    means = [(pl.col(f"part{position}") / pl.col(f"num{position}")).alias(f"mean{position}") for position in positions]
    whole = whole.with_columns(means)
    overall = whole.select(*keys, *(pl.col(f"mean{position}").alias(f"overall{position}") for position in positions))
    joined = rows.join(overall, on=keys, how="left", nulls_equal=True, maintain_order="left")
    deviations = joined.select(*keys, *(column for position in positions for column in _deviations(position)))
    return _corrected_by_group(whole, deviations, keys, positions).to_arrow()


def _deviations(position: str) -> list[pl.Expr]:
    """Return a part's summed (`rest`) and squared deviations from the overall mean."""
    number, difference = pl.col(f"num{position}"), pl.col(f"mean{position}") - pl.col(f"overall{position}")
    square = pl.col(f"square{position}") + (difference**2 * number).fill_null(0.0)
    return [(difference * number).alias(f"rest{position}"), square.alias(f"square{position}")]


def _corrected_by_group(totals: Frame, deviations: Frame, keys: Sequence[str], positions: Sequence[str | int]) -> Frame:
    """Return the moments by group, corrected by the rounding error of the mean (`rest`).

    `totals` has `rows` and, per column, `num`, `sum`, `min`, `max` and `mean` by key; `deviations` has summed (`rest`)
    and squared (`square`) deviations from `mean`, in several rows per key.
    """
    sums = deviations.group_by(keys, maintain_order=True).agg(pl.exclude(keys).sum())
    both = totals.join(sums, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return both.select(*keys, "rows", *(column for position in positions for column in _corrected(position)))


def _corrected(position: str | int) -> list[pl.Expr]:
    constant = pl.col(f"min{position}") == pl.col(f"max{position}")
    mean, rest = pl.col(f"mean{position}"), pl.col(f"rest{position}") / pl.col(f"num{position}")
    square = pl.max_horizontal(pl.col(f"square{position}") - rest * pl.col(f"rest{position}"), 0.0)
    return [
        *(pl.col(f"{name}{position}") for name in ("num", "sum", "min", "max")),
        pl.when(constant).then(pl.col(f"min{position}")).when(rest.is_finite()).then(mean + rest).otherwise(mean)
        .fill_nan(None).alias(f"mean{position}"),
        pl.when(constant | (pl.col(f"num{position}") == 0)).then(0.0).otherwise(square).alias(f"square{position}"),
    ]  # fmt: skip


def _statistic(name: str, at: int) -> pl.Expr:
    number = pl.col(f"num{at}")
    variance = pl.when(number > 1).then(pl.col(f"square{at}").fill_nan(None) / (number - 1))
    statistic = {"var": variance, "std": variance.sqrt()}.get(name, pl.col(f"{name}{at}").fill_nan(None))
    return statistic.alias(f"{name}{at}")
