"""TargetEncoding on NVTabular: sums of targets by group and fold, joined to the rows by JoinExternal.

NVTabular's own transform samples new folds by row position in a partition, for held-out rows as well. So the fold is
part of the group key, and the encodings follow from the sums, as in the other engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.aggregators.target_encoding import FOLD
from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet
from recsys_cli.etl.nvtabular_engine.grouping import Keys, grouped, join_by_key, replaced
from recsys_cli.etl.nvtabular_engine.plain import elements, plain
from recsys_cli.features.columns import TRAIN_ROW
from recsys_cli.ops import TargetEncoding
from recsys_cli.ops.grouping import Group, members, name_of
from recsys_cli.ops.target_encoding import FOLDS, MEANS


def learn(op: TargetEncoding, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:
    """Compute count and sum of each target by key and fold: `count0`, `sum0`, `count1` etc."""
    columns: dict[str, pa.Array] = {}
    for at, name in enumerate(op.targets):
        target = plain(elements(rows.column(name))[0], name)
        valid = np.ones(rows.num_rows) if target.nulls is None else (~target.nulls).astype(np.float64)
        # Nulls add 0 to the sum and to the count, the sum of the flags.
        columns |= {f"s{at}": target.values.cast(pa.float64(), safe=False), f"c{at}": pa.array(valid)}
    partials = {}
    for position, group in enumerate(op.columns):
        keys = _keys(op, group, rows)
        sums = _sums(keys, columns, folder / str(position))
        *parts, folds = keys.restore(sums).values()
        table = {f"key{at}": part for at, part in enumerate(parts)} | {FOLD: folds.cast(pa.uint32())}
        for at in range(len(op.targets)):
            table |= {f"count{at}": sums.column(f"c{at}").cast(pa.int64()), f"sum{at}": sums.column(f"s{at}")}
        partials[name_of(group)] = pa.table(table)
    return partials


def apply(op: TargetEncoding, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Add the encodings: out-of-fold for rows of train."""
    folded = op.kfold > 1 and TRAIN_ROW in rows.column_names
    means = state[MEANS].to_pylist()[0]
    encoded: dict[str, pa.Array] = {}
    for group in op.columns:
        keys = _keys(op, group, rows) if folded else Keys.of(group, rows)
        table = state[name_of(group) + (FOLDS if folded else "")]
        table = table.rename_columns([f"key{len(members(group))}" if n == FOLD else n for n in table.column_names])
        joined = join_by_key(keys, table, list(means))
        for (column, mean), name in zip(means.items(), op.written(group), strict=True):
            encoded[name] = joined[column].fill_null(pa.scalar(mean, pa.float64()))
    return replaced(rows, encoded)


def _keys(op: TargetEncoding, group: Group, rows: pa.Table) -> Keys:
    parts = {name: elements(rows.column(name))[0] for name in members(group)}
    folds = op.folds(rows.column(TRAIN_ROW).to_numpy())
    return Keys.from_parts({**parts, TRAIN_ROW: pa.array(folds)})


def _sums(keys: Keys, columns: Mapping[str, pa.Array], folder: Path) -> pa.Table:
    with quiet():
        op = nvtabular().ops.TargetEncoding(list(columns), kfold=1, out_path=str(folder))
    return grouped(op, "stats", keys, columns, {name: f"{name}_sum" for name in columns})
