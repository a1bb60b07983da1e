"""Tables by id as NVTabular can count them: each row as often as the interactions that it stands for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recsys_cli.features.columns import ROW_WEIGHT


def repeated(rows: pa.Table) -> pa.Table:
    """Return every row as often as its weight says, without the weight: as if the table were joined."""
    weights = rows.column(ROW_WEIGHT).to_numpy()
    return rows.drop_columns([ROW_WEIGHT]).take(pa.array(np.repeat(np.arange(rows.num_rows), weights)))
