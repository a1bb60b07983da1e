"""Shortest and longest lists of ValueCount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.ops import ValueCount
from recsys_cli.ops.value_count import LONGEST, SHORTEST


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the shortest and longest list; parts without rows have nulls."""
    stacked = pa.concat_tables(parts)
    shortest, longest = pc.min(stacked.column(SHORTEST)), pc.max(stacked.column(LONGEST))
    return pa.table({SHORTEST: [shortest.as_py()], LONGEST: [longest.as_py()]}, schema=_SCHEMA)


def finalize(op: ValueCount, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the lengths; 0 without rows."""
    return {
        column: pa.table({name: merged[column].column(name).fill_null(0) for name in (SHORTEST, LONGEST)})
        for column in op.columns
    }


_SCHEMA = pa.schema([(SHORTEST, pa.int64()), (LONGEST, pa.int64())])
