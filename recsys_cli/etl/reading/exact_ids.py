"""Ids as floats: from 2^53 on, neighboring whole numbers are one float64, so that users or items would merge."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.source import RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.nan import nan_to_null
from recsys_cli.features.spec import is_list


def check_ids(rows: pa.Table, ids: Collection[str], table: RawTable) -> None:
    """Refuse float ids from the first whole number that their type cannot tell from the next: 2^53 of float64, 2^24 of float32.

    Raises:
        DataError: A column of `ids` has such a value.
    """
    for name in (column for column in rows.column_names if column in ids):
        values = rows.column(name)
        if is_list(values.type):
            values = pc.list_flatten(values)
        if not pa.types.is_floating(values.type):
            continue
        digits = np.finfo(values.type.to_pandas_dtype()).nmant + 1
        ends = pc.min_max(nan_to_null(values))  # of NaN alone they are infinite
        example = max(ends["min"].as_py() or 0, ends["max"].as_py() or 0, key=abs)
        if abs(example) >= 2**digits:
            text = f", or set types: {{{name}: string}} next to the table's files" if table.format == "csv" else ""
            raise DataError(
                f"table {table.name!r}: column {name} has the id {example!r}, a {values.type}: from 2^{digits} on, "
                "different ids become one",
                hint=f"write ids as text or whole numbers{text}",
            )
