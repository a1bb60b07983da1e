"""FillMedian on NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.ops import FillMedian
from recsys_cli.serving.encoder.filling import filled
from recsys_cli.serving.encoder.values import Apply, Types


def compiled(op: FillMedian, state: Mapping[str, pa.Table], types: Types) -> Apply:
    """Fill nulls and NaN with the median."""
    medians = {name: state[name].column("median")[0].as_py() for name in op.columns}
    return filled(op, medians, dict.fromkeys(op.columns, pa.float64()), types)
