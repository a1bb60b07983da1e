"""TargetEncoding on NumPy: a lookup of the encodings from all of train, as for held-out rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.features.ops import TargetEncoding
from recsys_cli.features.ops.grouping import members, name_of
from recsys_cli.features.ops.target_encoding import MEANS
from recsys_cli.serving.encoder.groups import GroupIndex, gathered, lookup
from recsys_cli.serving.encoder.values import Apply, Types


def compiled(op: TargetEncoding, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Add the encodings; a group absent from train gets the mean."""
    means = {column: np.nan if mean is None else mean for column, mean in state[MEANS].to_pylist()[0].items()}
    groups = []
    for group in op.columns:
        table, encodings = state[name_of(group)], {}
        for (column, mean), name in zip(means.items(), op.written(group), strict=True):
            values = lookup(table, column)
            encodings[name] = np.where(np.isnan(values), mean, values)
            types[name] = pa.float64()
        groups.append((GroupIndex(table, members(group)), encodings))

    return gathered(groups)
