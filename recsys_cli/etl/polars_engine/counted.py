"""Whether a Categorify has counted every value once: cuDF was seen to lose and to double groups (cudf#22932)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.features.columns import ROW_WEIGHT


def totals(columns: Sequence[str], frame: pl.LazyFrame, rows: pa.Table) -> dict[str, int]:
    """Return the number of values of each column, nulls among them, that of lists by element; not by counting groups.

    Args:
        columns: What is counted.
        frame: The rows that have them.
        rows: What the frame is made of: as many rows, with the weights.
    """
    number = rows.num_rows if ROW_WEIGHT not in rows.column_names else int(pc.sum(rows.column(ROW_WEIGHT)).as_py() or 0)
    types = frame.select(columns).collect_schema()
    found = dict.fromkeys(columns, number)
    weight = pl.col(ROW_WEIGHT) if ROW_WEIGHT in rows.column_names else pl.lit(1, pl.Int64)
    for name in found:
        if isinstance(types[name], pl.List):
            elements = (pl.col(name).list.len().cast(pl.Int64) * weight).sum()
            found[name] = int(frame.select(elements).collect().item())
    return found


def check(column: str, counts: pa.Table, total: int) -> None:
    """Check that the counts of a column's values add up to their number.

    Raises:
        DataError: They do not.
    """
    counted = pc.sum(counts.column("count")).as_py() or 0
    if counted != total:
        raise DataError(f"counting {column} gave {counted} values instead of {total}", hint="use etl.device=cpu")
