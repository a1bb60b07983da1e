"""Aggregators of the fitted ops, common to all engines.

`merge` and `finalize` are deterministic functions of their arguments and their order, without unordered group-bys:
threads and clusters give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import pyarrow as pa

from recsys_cli import ops
from recsys_cli.etl.implementations import ForeignModule, load
from recsys_cli.ops.op import Op


class Aggregator(Protocol):
    """Interface of an aggregator module."""

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge the partial aggregates of shards, in shard order, into one, mergeable again."""

    def finalize(self, op: Op, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the fitted state of the op from its merged aggregates, both by name."""


MODULES: dict[type, str] = {
    ops.Categorify: "recsys_cli.etl.aggregators.categorify",
    ops.FillMedian: "recsys_cli.etl.aggregators.fill_median",
    ops.JoinGroupby: "recsys_cli.etl.aggregators.join_groupby",
    ops.Normalize: "recsys_cli.etl.aggregators.normalize",
    ops.NormalizeMinMax: "recsys_cli.etl.aggregators.ranges",
    ops.ReduceDtypeSize: "recsys_cli.etl.aggregators.ranges",
    ops.TargetEncoding: "recsys_cli.etl.aggregators.target_encoding",
    ops.ValueCount: "recsys_cli.etl.aggregators.value_count",
}


def of(op: Op) -> Aggregator:
    """Return the aggregator of an op.

    Raises:
        ConfigError: The op of another package declares no aggregator.
    """
    return cast("Aggregator", load(op, "aggregator", MODULES))


def finalize(op: Op, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the fitted state of an op from its merged aggregates, both by name.

    Raises:
        ConfigError: The aggregator of another package fails, or returns no table for a state of the op.
    """
    aggregator = of(op)
    state = aggregator.finalize(op, merged)
    if isinstance(aggregator, ForeignModule):
        aggregator.check_tables(state, op.states)
    return state
