"""Missing values in the tables by id, weighted by the number of interactions."""

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
    """Yield each table column with its missing values, counted as in the flat layout.

    `ids` has the number of interactions by id of each key, or by table row for tables with cold keys.
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
    column_ids = values.to_numpy()
    unseen = column_ids == UNSEEN
    if column.buckets and column.cardinality is not None:
        unseen |= column_ids >= column.cardinality - column.buckets
    return MissingValues(
        null=int(weights[column_ids == NULL].sum()), unseen=int(weights[unseen].sum()), values=int(weights.sum())
    )
