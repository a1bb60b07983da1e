"""Categorify on NVTabular: it counts and encodes; nulls, order, ties and thresholds are handled outside.

Unseen values get buckets by the hash function common to all engines. NVTabular's own hashes differ between pandas (CPU)
and cuDF (GPU), and its buckets precede the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.etl.hashed import bucket_ids
from recsys_cli.etl.nvtabular_engine.frames import fit, nvtabular, quiet, run, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements, plain, raw
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.ops import Categorify

VALUE = "value"
"""Column name in frames for counting, because NVTabular derives file names and scratch columns from column names."""


def learn(op: Categorify, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:
    """Count the values, null included, as `value` and `count`, in the raw type and any order."""
    return {column: _counts(rows.column(column), column, folder / str(at)) for at, column in enumerate(op.learns)}


def apply(op: Categorify, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:
    """Replace values by ids."""
    vocabularies = {column: state[op.vocabulary_of(column)] for column in op.learns}
    return Encoder(vocabularies, folder, num_buckets=op.num_buckets).columns(rows)


def _counts(column: pa.ChunkedArray, name: str, folder: Path) -> pa.Table:
    values, _ = elements(column)
    prepared = plain(values, name)
    valid = prepared.valid
    if len(valid) == 0:
        counts = pa.table({VALUE: valid, "count": pa.array([], pa.int64())})
    else:
        counts = _count(valid, folder)
        if (total := pc.sum(counts.column("count")).as_py()) != len(valid):
            raise DataError(
                f"counting {name} gave {total} values instead of {len(valid)}", hint="use etl.engine=polars"
            )
    distinct = raw(counts.column(VALUE).combine_chunks(), values.type, name)
    num_nulls = len(values) - len(valid)
    table = pa.table({VALUE: distinct, "count": counts.column("count").cast(pa.int64()).combine_chunks()})
    if not num_nulls:
        return table
    nulls = pa.table({VALUE: pa.nulls(1, distinct.type), "count": pa.array([num_nulls], pa.int64())})
    return pa.concat_tables([table, nulls])


def _count(values: pa.Array, folder: Path) -> pa.Table:
    with quiet():
        fit([VALUE] >> nvtabular().ops.Categorify(out_path=str(folder)), {VALUE: values})
    counts = pq.read_table(folder / "categories" / f"unique.{VALUE}.parquet", columns=[VALUE, f"{VALUE}_size"])
    return counts.rename_columns([VALUE, "count"])


class Encoder:
    """Encodes values in a workflow of one Categorify op."""

    def __init__(self, vocabularies: Mapping[str, pa.Table], folder: Path, *, num_buckets: int = 0) -> None:
        self._num_buckets = num_buckets
        self._ends = {name: FIRST + table.num_rows for name, table in vocabularies.items()}
        self._positions = {name: f"c{position}" for position, name in enumerate(vocabularies)}
        values = {
            name: plain(table.column("value").combine_chunks(), name).values for name, table in vocabularies.items()
        }
        self._nonempty = {name for name, each in values.items() if len(each)}
        with quiet():
            vocabs = {
                self._positions[name]: to_frame({"v": values[name]})["v"] for name in values if name in self._nonempty
            }
            self._op = nvtabular().ops.Categorify(vocabs=vocabs, out_path=str(folder), dtype=np.int32)

    def columns(self, table: pa.Table) -> pa.Table:
        """Encode the columns with a vocabulary; the others stay."""
        flat: dict[str, pa.Array] = {}
        encoded: dict[str, pa.Array] = {}
        for name in table.column_names:
            if name in self._positions:
                values, offsets = elements(table.column(name))
                if offsets is None:
                    flat[name] = values
                else:
                    encoded[name] = pa.ListArray.from_arrays(pa.array(offsets), self({name: values})[name])
        encoded |= self(flat)
        return pa.table({name: encoded.get(name, table.column(name)) for name in table.column_names})

    def __call__(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return int32 ids of scalar columns, (N,) each: NULL for nulls, UNSEEN or a bucket for other values."""
        prepared = {name: plain(values, name) for name, values in columns.items()}
        inputs = {self._positions[name]: column.values for name, column in prepared.items() if name in self._nonempty}
        encoded = run(list(inputs) >> self._op, inputs) if any(map(len, inputs.values())) else pa.table({})
        ids = {}
        for name, column in prepared.items():
            position = self._positions[name]
            if position in encoded.column_names:
                codes = encoded.column(position).to_numpy().astype(np.int32)
            else:
                codes = np.full(len(column.values), UNSEEN, dtype=np.int32)
            if self._num_buckets:
                hashed = bucket_ids(columns[name], self._num_buckets, first=self._ends[name])
                codes = np.where(codes == UNSEEN, hashed, codes)
            if column.nulls is not None:
                codes = np.where(column.nulls, np.int32(NULL), codes)
            ids[name] = pa.array(codes)
        return ids
