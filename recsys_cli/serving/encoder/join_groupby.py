"""JoinGroupby on NumPy: a lookup of the fitted statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import JoinGroupby
from recsys_cli.ops.grouping import Group, members, name_of
from recsys_cli.serving.encoder.groups import GroupIndex, gathered, lookup
from recsys_cli.serving.encoder.values import Apply, Array, Types


def compiled(op: JoinGroupby, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Add the statistics of each row's group."""
    for group in op.columns:
        types |= {name: pa.int64() if one == "count" else pa.float64() for one, name in op.written(group).items()}
    return gathered(
        [(GroupIndex(state[name_of(group)], members(group)), columns_of(op, group, state)) for group in op.columns]
    )


def columns_of(op: JoinGroupby, group: Group, state: Mapping[str, pa.Table]) -> dict[str, Array]:
    """Return the statistics of a group by output name, and at the end those of a group absent from train: count 0, else NaN."""
    statistics = {}
    for statistic, name in op.written(group).items():
        values = lookup(state[name_of(group)], statistic)
        statistics[name] = np.nan_to_num(values).astype(np.int64) if statistic == "count" else values
    return statistics
