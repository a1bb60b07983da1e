"""FillMissing on NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.ops import FillMissing
from recsys_cli.ops.numeric import calculated_type
from recsys_cli.serving.encoder.filling import filled
from recsys_cli.serving.encoder.values import Apply, Types, element


def compiled(op: FillMissing, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Fill nulls and NaN with `fill_val`."""
    kinds = {name: calculated_type(element(types[name]), op.fill_val) for name in op.columns}
    return filled(op, dict.fromkeys(op.columns, op.fill_val), kinds, types)
