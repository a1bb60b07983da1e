"""JoinGroupby on NumPy: a lookup of the fitted statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.features.ops import JoinGroupby
from recsys_cli.features.ops.grouping import members, name_of
from recsys_cli.serving.encoder.groups import GroupIndex, gathered, lookup
from recsys_cli.serving.encoder.values import Apply, Types


def compiled(op: JoinGroupby, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Add the statistics of each row's group."""
    groups = []
    for group in op.columns:
        table = state[name_of(group)]
        statistics = {}
        for statistic, name in op.written(group).items():
            is_count = statistic == "count"
            values = lookup(table, statistic)
            statistics[name] = np.nan_to_num(values).astype(np.int64) if is_count else values
            types[name] = pa.int64() if is_count else pa.float64()
        groups.append((GroupIndex(table, members(group)), statistics))

    return gathered(groups)
