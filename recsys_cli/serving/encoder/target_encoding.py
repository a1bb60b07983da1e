"""TargetEncoding on NumPy: a lookup of the encodings from all of train, as for held-out rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import TargetEncoding
from recsys_cli.ops.grouping import Group, members, name_of
from recsys_cli.ops.target_encoding import MEANS
from recsys_cli.serving.encoder.groups import GroupIndex, gathered, lookup
from recsys_cli.serving.encoder.values import Apply, Array, Types


def compiled(op: TargetEncoding, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Add the encodings."""
    types |= dict.fromkeys((name for group in op.columns for name in op.written(group)), pa.float64())
    return gathered(
        [(GroupIndex(state[name_of(group)], members(group)), columns_of(op, group, state)) for group in op.columns]
    )


def columns_of(op: TargetEncoding, group: Group, state: Mapping[str, pa.Table]) -> dict[str, Array]:
    """Return the encodings of a group by output name, and at the end that of a group absent from train: the mean."""
    encodings = {}
    for (column, mean), name in zip(state[MEANS].to_pylist()[0].items(), op.written(group), strict=True):
        values = lookup(state[name_of(group)], column)
        encodings[name] = np.where(np.isnan(values), np.nan if mean is None else mean, values)
    return encodings
