"""TargetEncoding on Polars: counts and sums of targets by group and fold, joined to the rows."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from recsys_cli.etl.aggregators.target_encoding import FOLD
from recsys_cli.etl.polars_engine.grouping import join_by_key, keys_of
from recsys_cli.features.columns import TRAIN_ROW
from recsys_cli.ops import TargetEncoding
from recsys_cli.ops.grouping import name_of
from recsys_cli.ops.target_encoding import FOLDS, MEANS


def learn(op: TargetEncoding, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:  # noqa: ARG001 - rows of train have weight 1
    """Compute count and sum of each target by key and fold: `count0`, `sum0`, `count1` etc."""
    targets = [pl.col(name).cast(pl.Float64).fill_nan(None).alias(f"sum{at}") for at, name in enumerate(op.targets)]
    totals = [pl.col(f"sum{at}").count().cast(pl.Int64).alias(f"count{at}") for at in range(len(targets))]
    totals += [pl.col(f"sum{at}").sum() for at in range(len(targets))]
    queries = {}
    for group in op.columns:
        keys = [*keys_of(group, frame), _fold(op)]
        by = [key.meta.output_name() for key in keys]
        queries[name_of(group)] = frame.select([*keys, *targets]).group_by(by, maintain_order=True).agg(totals)
    return queries


def apply(op: TargetEncoding, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the encodings: out-of-fold for rows of train."""
    folded = op.kfold > 1 and TRAIN_ROW in frame.collect_schema().names()
    means = state[MEANS].to_pylist()[0]
    encoded = []
    for group in op.columns:
        # Keys come first: an output may have the name of a group column.
        keys = [*keys_of(group, frame), *([_fold(op)] if folded else [])]
        names = dict(zip(means, op.written(group), strict=True))
        frame = join_by_key(frame, keys, state[name_of(group) + (FOLDS if folded else "")], names)
        encoded += [pl.col(name).fill_null(pl.lit(means[column], pl.Float64)) for column, name in names.items()]
    return frame.with_columns(encoded)


def _fold(op: TargetEncoding) -> pl.Expr:
    def folds(rows: pl.Series) -> pl.Series:
        return pl.Series(op.folds(rows.to_numpy()))

    return pl.col(TRAIN_ROW).map_batches(folds, return_dtype=pl.UInt32, is_elementwise=True).alias(FOLD)
