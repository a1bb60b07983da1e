"""What is missing in the columns of tables by id: each row counts as often as interactions point at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.report.facts import MissingValues
from recsys_cli.etl.write import count_numbers
from recsys_cli.features.schema import NULL, UNSEEN, Column, Kind, Schema, file_of

Counts = npt.NDArray[np.int64]


def in_tables(folder: Path, schema: Schema, ids: Mapping[str, Counts]) -> Iterator[tuple[str, MissingValues]]:
    """Yield the columns of all tables and what is missing in them, as if they were joined to the interactions.

    Args:
        folder: The prepared data.
        schema: Its columns, in the star layout.
        ids: How often the interactions have each id of a key, or each row of the table where some keys share an id.
    """
    for key in schema.tables:
        table = pq.read_table(folder / "tables" / file_of(key))
        for column in schema.in_table(key):
            if key in ids:
                yield column.name, _missing(table.column(column.name), column, ids[key][: table.num_rows])


def _missing(values: pa.ChunkedArray, column: Column, weights: Counts) -> MissingValues:
    if column.ragged:
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        weights, values = np.repeat(weights, lengths), pc.list_flatten(values)
    if column.kind is Kind.NUMERIC:
        return MissingValues(unseen=0, **count_numbers(values, weights))
    found = values.to_numpy()
    unseen = found == UNSEEN
    if column.buckets and column.cardinality is not None:
        unseen |= found >= column.cardinality - column.buckets
    return MissingValues(
        null=int(weights[found == NULL].sum()), unseen=int(weights[unseen].sum()), values=int(weights.sum())
    )
