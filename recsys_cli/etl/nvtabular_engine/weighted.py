"""Dimension tables for NVTabular, without weights: each row is repeated by its number of interactions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recsys_cli.features.columns import ROW_WEIGHT


def repeated(rows: pa.Table) -> pa.Table:
    """Repeat every row by its ROW_WEIGHT and drop that column, as if the table were joined."""
    weights = rows.column(ROW_WEIGHT).to_numpy()
    return rows.drop_columns([ROW_WEIGHT]).take(pa.array(np.repeat(np.arange(rows.num_rows), weights)))
