"""LogOp on NumPy; NaN passes through, values below -1 become NaN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops import LogOp
from recsys_cli.serving.encoder.values import Apply, Types, Values, caster, mapped, retype

_to_floats = caster(pa.float64())


def compiled(op: LogOp, state: Mapping[str, pa.Table], types: Types) -> Apply:  # noqa: ARG001 - stateless op
    """Replace x by log(1 + x)."""
    for name in op.columns:
        retype(types, name, pa.float64())
    return mapped(dict.fromkeys(op.columns, _log))


def _log(values: Values) -> Values:
    return values.with_data(np.log(_to_floats(values).data + 1.0))
