"""Ranges of NormalizeMinMax."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from recsys_cli.etl.aggregators.ranges import merge
from recsys_cli.features.ops import NormalizeMinMax

__all__ = ["finalize", "merge"]


def finalize(op: NormalizeMinMax, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the merged ranges."""
    return {column: merged[column] for column in op.columns}
