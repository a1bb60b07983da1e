"""Table rows of cold keys, on NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recsys_cli.ops.steps import Locate
from recsys_cli.serving.encoder.ids import comparable
from recsys_cli.serving.encoder.values import Apply, Columns, Types, Values
from recsys_cli.serving.encoder.vocabulary import ABSENT, VocabularyIndex


def compiled(
    op: Locate, state: Mapping[str, pa.Table], types: Types, indexes: Mapping[str, VocabularyIndex] | None = None
) -> Apply:
    """Add the column of table rows; ABSENT for keys with an id. An index with the name of that column is not built."""
    cold = state[op.key]
    built = indexes or {}
    index = built[op.output] if op.output in built else VocabularyIndex.build(cold.column("value"))
    table_rows = np.append(cold.column("row").to_numpy(), np.int32(ABSENT))
    types[op.output] = pa.int32()

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        keys = comparable(columns[op.key])
        found = table_rows[index.positions(keys.data)]
        if keys.nulls is not None:
            found[keys.nulls] = ABSENT
        columns[op.output] = Values(found)

    return apply
