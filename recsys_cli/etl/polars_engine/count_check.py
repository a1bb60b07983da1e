"""Check of Categorify's counts: some cuDF releases lose or double groups (cudf#22932)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.features.columns import ROW_WEIGHT


def totals(columns: Sequence[str], frame: pl.LazyFrame, rows: pa.Table) -> dict[str, int]:
    """Return the number of values of each column, nulls included, without a group-by; lists by element.

    `rows` is the source of the frame, with ROW_WEIGHT for dimension tables.
    """
    number = rows.num_rows if ROW_WEIGHT not in rows.column_names else int(pc.sum(rows.column(ROW_WEIGHT)).as_py() or 0)
    types = frame.select(columns).collect_schema()
    numbers = dict.fromkeys(columns, number)
    weight = pl.col(ROW_WEIGHT) if ROW_WEIGHT in rows.column_names else pl.lit(1, pl.Int64)
    for name in numbers:
        if isinstance(types[name], pl.List):
            elements = (pl.col(name).list.len().cast(pl.Int64) * weight).sum()
            numbers[name] = int(frame.select(elements).collect().item())
    return numbers


def check(column: str, counts: pa.Table, total: int) -> None:
    """Refuse counts of a column that do not add up to its number of values."""
    counted = pc.sum(counts.column("count")).as_py() or 0
    if counted != total:
        raise DataError(f"counting {column} gave {counted} values instead of {total}", hint="use etl.device=cpu")
