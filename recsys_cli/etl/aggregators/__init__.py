"""Merging what parts of train have told, and drawing the conclusion: the same for every engine, one file per op that learns.

Each has `merge(parts)`, which makes one table of several and whose result may be merged again, and `finalize(op, merged)`,
which makes the state of it. Both depend on nothing but their arguments and their order: no unordered group-by, so that
threads and clusters give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import pyarrow as pa

from recsys_cli.etl.implementations import load
from recsys_cli.features import ops
from recsys_cli.features.ops.op import Op


class Aggregator(Protocol):
    """What a file here provides."""

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Make one table of those that parts of train gave, in the order of the parts."""

    def finalize(self, op: Op, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return what the op has learnt, given the merged tables by name."""


MODULES: dict[type, str] = {
    ops.Categorify: "recsys_cli.etl.aggregators.categorify",
    ops.FillMedian: "recsys_cli.etl.aggregators.fill_median",
    ops.JoinGroupby: "recsys_cli.etl.aggregators.join_groupby",
    ops.Normalize: "recsys_cli.etl.aggregators.normalize",
    ops.NormalizeMinMax: "recsys_cli.etl.aggregators.normalize_min_max",
    ops.ReduceDtypeSize: "recsys_cli.etl.aggregators.reduce_dtype_size",
    ops.TargetEncoding: "recsys_cli.etl.aggregators.target_encoding",
    ops.ValueCount: "recsys_cli.etl.aggregators.value_count",
}


def of(op: Op) -> Aggregator:
    """Return what merges the partial aggregates of an op.

    Raises:
        ConfigError: An op of another package declares no aggregator.
    """
    return cast("Aggregator", load(op, "aggregator", MODULES))
