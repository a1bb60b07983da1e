"""Encodings of TargetEncoding by group and fold, from counts and sums of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from recsys_cli.etl.aggregators.grouping import in_order, key_names, plain, stacked
from recsys_cli.ops import TargetEncoding
from recsys_cli.ops.target_encoding import FOLDS, MEANS

FOLD = "fold"
Floats = npt.NDArray[np.float64]


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Sum counts and sums by group and fold, in order of first appearance."""
    table = stacked(parts)
    by = [*key_names(table), FOLD]
    return table.group_by(by, maintain_order=True).agg(pl.exclude(by).sum()).to_arrow()


def finalize(op: TargetEncoding, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the encodings of each group over all of train, and out-of-fold."""
    tables = {name: in_order(stacked([merged[name]]), FOLD) for name in op.learns}
    means = _means(op, tables[op.learns[0]])
    state = {MEANS: pa.table({f"target{at}": pa.array([mean], pa.float64()) for at, mean in enumerate(means)})}
    for name, table in tables.items():
        by = key_names(table)
        whole = table.group_by(by, maintain_order=True).agg(pl.exclude(*by, FOLD).sum())
        state[name] = plain(_encoded(op, whole, means))
        if op.kfold > 1:
            state[name + FOLDS] = plain(_encoded(op, _others(op, table), means))
    return state


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
