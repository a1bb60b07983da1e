"""Categorify on NVTabular: it counts and looks up; nulls are handled around it, order, ties and what is kept after it.

What it has not found is spread over buckets by the hash that all engines share: its own hashes by pandas on a CPU and by cuDF
on a GPU, which give different ids, and puts the buckets before the vocabulary.
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
from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, run, schema, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements, plain, raw
from recsys_cli.features.ops import Categorify
from recsys_cli.features.schema import FIRST, NULL, UNSEEN

VALUE = "value"
"""Name of the column in every frame that is counted: NVTabular makes file names and scratch columns of column names."""


def learn(op: Categorify, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:
    """Count each column's values, as `value` and `count`, in the raw type and in no order; null is left out.

    Raises:
        DataError: Values were lost in counting.
    """
    return {column: _counts(rows.column(column), column, folder / str(at)) for at, column in enumerate(op.learns)}


def apply(op: Categorify, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:
    """Replace the columns by ids."""
    vocabularies = {column: state[op.vocabulary_of(column)] for column in op.learns}
    return Encoder(vocabularies, folder, num_buckets=op.num_buckets).columns(rows)


def _counts(column: pa.ChunkedArray, name: str, folder: Path) -> pa.Table:
    values, _ = elements(column)
    prepared = plain(values, name)
    known = prepared.known
    if len(known) == 0:
        counts = pa.table({VALUE: known, "count": pa.array([], pa.int64())})
    else:
        counts = _count(known, folder)
        if (total := pc.sum(counts.column("count")).as_py()) != len(known):
            raise DataError(
                f"counting {name} gave {total} values instead of {len(known)}", hint="use etl.engine=polars"
            )
    found = raw(counts.column(VALUE).combine_chunks(), values.type, name)
    rest = len(values) - len(known)
    table = pa.table({VALUE: found, "count": counts.column("count").cast(pa.int64()).combine_chunks()})
    nulls = pa.table({VALUE: pa.nulls(min(1, rest), found.type), "count": pa.array([rest] * min(1, rest), pa.int64())})
    return pa.concat_tables([table, nulls])


def _count(values: pa.Array, folder: Path) -> pa.Table:
    """Fit a Categorify op on values without a null and return what it counted."""
    library = nvtabular()
    with quiet():
        op = library.ops.Categorify(out_path=str(folder))
        frame = to_frame({VALUE: values})
        library.Workflow([VALUE] >> op).fit(library.Dataset(frame, schema=schema(frame)))
    counts = pq.read_table(folder / "categories" / f"unique.{VALUE}.parquet", columns=[VALUE, f"{VALUE}_size"])
    return counts.rename_columns([VALUE, "count"])


class Encoder:
    """Turns values into ids with ready vocabularies, through a workflow of one Categorify op."""

    def __init__(self, vocabularies: Mapping[str, pa.Table], folder: Path, *, num_buckets: int = 0) -> None:
        self._num_buckets = num_buckets
        self._ends = {name: FIRST + table.num_rows for name, table in vocabularies.items()}
        self._positions = {name: f"c{position}" for position, name in enumerate(vocabularies)}
        known = {
            name: plain(table.column("value").combine_chunks(), name).values for name, table in vocabularies.items()
        }
        self._filled = {name for name, values in known.items() if len(values)}
        with quiet():
            vocabs = {
                self._positions[name]: to_frame({"v": known[name]})["v"] for name in known if name in self._filled
            }
            self._op = nvtabular().ops.Categorify(vocabs=vocabs, out_path=str(folder), dtype=np.int32)

    def columns(self, table: pa.Table) -> pa.Table:
        """Return the table with ids in the columns that have a vocabulary; the others stay."""
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
        """Return int32 ids of scalar columns of N values each; nulls are NULL, values not in it UNSEEN or in a bucket."""
        prepared = {name: plain(values, name) for name, values in columns.items()}
        inputs = {self._positions[name]: column.values for name, column in prepared.items() if name in self._filled}
        found = run(list(inputs) >> self._op, inputs) if any(map(len, inputs.values())) else pa.table({})
        ids = {}
        for name, column in prepared.items():
            position = self._positions[name]
            if position in found.column_names:
                codes = found.column(position).to_numpy().astype(np.int32)
            else:
                codes = np.full(len(column.values), UNSEEN, dtype=np.int32)
            if self._num_buckets:
                hashed = bucket_ids(columns[name], self._num_buckets, first=self._ends[name])
                codes = np.where(codes == UNSEEN, hashed, codes)
            if column.nulls is not None:
                codes = np.where(column.nulls, np.int32(NULL), codes)
            ids[name] = pa.array(codes)
        return ids
