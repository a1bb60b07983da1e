"""Out-of-fold means of a target by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.features.columns import TRAIN_ROW
from recsys_cli.features.hashing import below, hash_counters, mix
from recsys_cli.features.spec import Spec
from recsys_cli.ops.grouping import (
    KEY,
    Group,
    GroupIndex,
    GroupOp,
    check_groups,
    fitted_table,
    gathered,
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
from recsys_cli.ops.values import Apply, Array, Columns, Types, Values
from recsys_cli.packages import np, npt, pa, pl

FOLD = "fold"
"""Column of the fold in tables by group and fold."""
FOLDS = ".folds"
"""Suffix of a group's second table: out-of-fold encodings by group and fold."""
MEANS = ".means"
"""Name of the table with the mean of each target, in one row."""
_STREAM = 5


class TargetEncoding(GroupOp):
    """Encode a group, such as an item or a user and a weekday, by the smoothed mean of a target.

    Fitted: the mean of each target by group over train, smoothed: (sum + p_smooth · mean) / (count + p_smooth), with the
    mean over train or `target_mean`. A train row is encoded from the other folds, without its own target; rows of other
    splits and new rows from all of train, without a target. The fold is a hash of `fold_seed` and the row number,
    independent of engine and machine. `kfold` 1 includes a row's own target, as in NVTabular: for comparisons only.
    Nulls: null and NaN of a target are excluded; in a group column they are a group of their own. A group absent from
    train (for a train row, from the other folds) or without a target gets the mean; without any target, null. Encoded
    ids and raw values can be grouped.
    Lists: refused.
    Output: float32, `TE_<columns>_<target>` for each group and target, next to the inputs. Columns of joined tables are
    first joined to the interactions, the home of the output.
    NVTabular 23.08: differs in two points. Here held-out rows use no folds, and rows with a null are counted.
    """

    fits_on_sampled: ClassVar[bool] = True
    needs_row_numbers: ClassVar[bool] = True

    op: Literal["TargetEncoding"] = "TargetEncoding"
    columns: tuple[Group, ...] = Field(min_length=1)
    """Columns to encode; a nested list is one group by a combination."""
    target: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """Target column of numbers, or several."""
    kfold: int = Field(default=3, ge=1, lt=1 << 16)
    """Number of folds of train."""
    fold_seed: int = 42
    """Seed of the assignment of rows to folds."""
    p_smooth: float = Field(default=20, ge=0, allow_inf_nan=False)
    """Smoothing: weight of the overall mean, in rows."""
    target_mean: float | None = Field(default=None, allow_inf_nan=False)
    """Overall mean for all targets, in place of that of train."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The target columns."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def values(self) -> tuple[str, ...]:
        """The targets; the fitted op needs none."""
        return self.targets

    def exposed(self, output: str) -> tuple[str, ...]:
        """Return the group columns; with `kfold` 1 a row's own target is the user's choice."""
        return next(members(group) for group in self.columns if output in self.written(group).values())

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the groups, of their out-of-fold tables and of the means."""
        folds = tuple(name + FOLDS for name in self.learns) if self.kfold > 1 else ()
        return (*self.learns, *folds, MEANS)

    def written(self, group: Group) -> dict[str, str]:
        """Return the output names of a group, by column of the group's table: one per target."""
        return {f"target{at}": f"TE_{name_of(group)}_{target}" for at, target in enumerate(self.targets)}

    def folds(self, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
        """Return the fold of each train row by row number."""
        return below(hash_counters(rows, mix(self.fold_seed, _STREAM)), self.kfold).astype(np.uint32)

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the encodings."""
        scalars(inputs)
        numbers({name: inputs[name] for name in self.targets})
        names = [name for group in self.columns for name in self.written(group).values()]
        check_groups(self.columns, [*names, *self.states])
        return {name: Spec(pa.float64()) for name in names}

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute count and sum of each target by key and fold: `count0`, `sum0`, `count1` etc."""
        targets = [
            pl.col(name).cast(pl.Float64).fill_nan(None).alias(f"sum{at}") for at, name in enumerate(self.targets)
        ]
        totals = [pl.col(f"sum{at}").count().cast(pl.Int64).alias(f"count{at}") for at in range(len(targets))]
        totals += [pl.col(f"sum{at}").sum() for at in range(len(targets))]
        queries = {}
        for group in self.columns:
            keys = [*keys_of(group, frame), self._fold()]
            by = [key.meta.output_name() for key in keys]
            queries[name_of(group)] = frame.select([*keys, *targets]).group_by(by, maintain_order=True).agg(totals)
        return queries

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Sum counts and sums by group and fold, in order of first appearance."""
        table = stacked(parts)
        by = [*key_names(table), FOLD]
        return table.group_by(by, maintain_order=True).agg(pl.exclude(by).sum()).to_arrow()

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the encodings of each group over all of train, and out-of-fold."""
        tables = {name: in_key_order(stacked([merged[name]]), FOLD) for name in self.learns}
        means = _means(self, tables[self.learns[0]])
        state = {MEANS: pa.table({f"target{at}": pa.array([mean], pa.float64()) for at, mean in enumerate(means)})}
        for name, table in tables.items():
            by = key_names(table)
            whole = table.group_by(by, maintain_order=True).agg(pl.exclude(*by, FOLD).sum())
            state[name] = fitted_table(_encoded(self, whole, means))
            if self.kfold > 1:
                state[name + FOLDS] = fitted_table(_encoded(self, _others(self, table), means))
        return state

    def statistics(self, group: Group, table: pa.Table, state: Tables) -> dict[str, Array]:
        """Return the encodings of a group; that of an absent group is the mean."""
        means = state[MEANS].to_pylist()[0]
        encodings = {}
        for column, name in self.written(group).items():
            values = lookup(table, column)
            encodings[name] = np.where(np.isnan(values), np.nan if means[column] is None else means[column], values)
        return encodings

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Look up the encodings from all of train; for rows of train, the out-of-fold ones."""
        if self.kfold == 1 or TRAIN_ROW not in types:
            return super().numpy(state, types)
        groups = []
        for group in self.columns:
            table = state[name_of(group) + FOLDS]
            encodings = self.statistics(group, table, state)
            types |= dict.fromkeys(encodings, pa.float64())
            keys = [*(f"{KEY}{at}" for at in range(len(members(group)))), FOLD]
            groups.append((GroupIndex(table, (*members(group), FOLDS), keys), encodings))
        encode = gathered(groups)

        def apply(columns: Columns, rows: int) -> None:
            columns[FOLDS] = Values(self.folds(columns[TRAIN_ROW].data))
            encode(columns, rows)

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Join the encodings: out-of-fold for rows of train."""
        folded = self.kfold > 1 and TRAIN_ROW in frame.collect_schema().names()
        means = state[MEANS].to_pylist()[0]
        encoded = []
        for group in self.columns:
            # Keys come first: an output may have the name of a group column.
            keys = [*keys_of(group, frame), *([self._fold()] if folded else [])]
            names = self.written(group)
            frame = join_by_key(frame, keys, state[name_of(group) + (FOLDS if folded else "")], names)
            encoded += [pl.col(name).fill_null(pl.lit(means[column], pl.Float64)) for column, name in names.items()]
        return frame.with_columns(encoded)

    def _fold(self) -> pl.Expr:
        def folds(rows: pl.Series) -> pl.Series:
            return pl.Series(self.folds(rows.to_numpy()))

        return pl.col(TRAIN_ROW).map_batches(folds, return_dtype=pl.UInt32, is_elementwise=True).alias(FOLD)


def _means(op: TargetEncoding, table: pl.DataFrame) -> list[float | None]:
    if op.target_mean is not None:
        return [op.target_mean] * len(op.targets)
    means: list[float | None] = []
    for at in range(len(op.targets)):
        count = int(table.get_column(f"count{at}").sum())
        mean = float(table.get_column(f"sum{at}").to_numpy().sum()) / count if count else np.nan
        means.append(None if np.isnan(mean) else mean)
    return means


def _encoded(op: TargetEncoding, totals: pl.DataFrame, means: list[float | None]) -> pl.DataFrame:
    """Replace counts and sums by encodings: (sum + p_smooth · mean) / (count + p_smooth)."""
    columns = {}
    for at, mean in enumerate(means):
        overall = np.nan if mean is None else mean
        counts, sums = totals.get_column(f"count{at}").to_numpy(), totals.get_column(f"sum{at}").to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            values = (sums + op.p_smooth * overall) / (counts + op.p_smooth)
        values = np.where((counts == 0) | np.isnan(values), overall, values)
        columns[f"target{at}"] = pl.Series(values).fill_nan(None)
    return totals.select(pl.exclude("^(count|sum)[0-9]+$")).with_columns(**columns)


def _others(op: TargetEncoding, table: pl.DataFrame) -> pl.DataFrame:
    """Return counts and sums of the other folds, by group and fold.

    Summed, because subtraction from the total leaves rounding traces of the own fold.
    """
    keys = table.select(key_names(table))
    starts = (keys.select(pl.struct(pl.all()).rle_id())).to_series().to_numpy()
    others = {}
    for name in table.columns:
        if name.startswith(("count", "sum")):
            values = table.get_column(name).to_numpy()
            sums = np.zeros_like(values)
            for distance in range(1, op.kfold):
                if distance >= len(values):
                    break
                same = starts[distance:] == starts[:-distance]
                sums[distance:] += np.where(same, values[:-distance], 0)
                sums[:-distance] += np.where(same, values[distance:], 0)
            others[name] = pl.Series(sums)
    return table.with_columns(**others)
