"""Lengths of lists: the shortest of the shortest, and the longest of the longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.ops import ValueCount
from recsys_cli.features.ops.value_count import LONGEST, SHORTEST


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Make one row of those that parts gave; null is that of a part without a row."""
    together = pa.concat_tables(parts)
    shortest, longest = pc.min(together.column(SHORTEST)), pc.max(together.column(LONGEST))
    return pa.table({SHORTEST: [shortest.as_py()], LONGEST: [longest.as_py()]}, schema=_SCHEMA)


def finalize(op: ValueCount, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the lengths; 0 where there was no row at all."""
    return {
        column: pa.table({name: merged[column].column(name).fill_null(0) for name in (SHORTEST, LONGEST)})
        for column in op.columns
    }


_SCHEMA = pa.schema([(SHORTEST, pa.int64()), (LONGEST, pa.int64())])
