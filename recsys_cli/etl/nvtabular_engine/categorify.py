"""Categorify on NVTabular: it counts and looks up; order, ties and nulls are settled around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.etl.nvtabular_engine.frames import dataset, nvtabular, quiet, run, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements, plain, raw
from recsys_cli.features.schema import NULL, UNSEEN

Load = Callable[[int], Mapping[str, pa.Array]]

VALUE = "value"
"""Name of the column in every frame that is counted: NVTabular makes file names and scratch columns of column names."""


def count(load: Load, shards: Sequence[int], graph: Any, *, folder: Path) -> pa.Table:
    """Fit a Categorify op and return what it counted, as `value` and `count`, in no order.

    Args:
        load: Returns the columns of a shard, without nulls.
        shards: The shards that have any rows, at least one.
        graph: What to compute from the columns before; its output is a column `value`.
        folder: A new folder for the op's files.
    """
    library = nvtabular()
    with quiet():
        op = library.ops.Categorify(out_path=str(folder))
        library.Workflow(graph >> op).fit(dataset(load, shards))
    counts = pq.read_table(folder / "categories" / f"unique.{VALUE}.parquet", columns=[VALUE, f"{VALUE}_size"])
    return counts.rename_columns([VALUE, "count"])


def vocabulary(counts: pa.Table, kind: pa.DataType, column: str) -> pa.Table:
    """Order a column's counted values by (count descending, value ascending), in their raw type."""
    ordered = counts.sort_by([("count", "descending"), (VALUE, "ascending")])
    values = raw(ordered.column(VALUE).combine_chunks(), kind, column)
    return pa.table({"value": values, "count": ordered.column("count").cast(pa.int64()).combine_chunks()})


class Encoder:
    """Turns values into ids with ready vocabularies, through a workflow of one Categorify op."""

    def __init__(self, vocabularies: Mapping[str, pa.Table], folder: Path) -> None:
        self._places = {name: f"c{place}" for place, name in enumerate(vocabularies)}
        known = {
            name: plain(table.column("value").combine_chunks(), name).values for name, table in vocabularies.items()
        }
        self._filled = {name for name, values in known.items() if len(values)}
        with quiet():
            vocabs = {self._places[name]: to_frame({"v": known[name]})["v"] for name in known if name in self._filled}
            self._op = nvtabular().ops.Categorify(vocabs=vocabs, out_path=str(folder), dtype=np.int32)

    def columns(self, table: pa.Table) -> pa.Table:
        """Return the table with ids in the columns that have a vocabulary; the others stay."""
        flat: dict[str, pa.Array] = {}
        encoded: dict[str, pa.Array] = {}
        for name in table.column_names:
            if name in self._places:
                values, offsets = elements(table.column(name))
                if offsets is None:
                    flat[name] = values
                else:
                    encoded[name] = pa.ListArray.from_arrays(pa.array(offsets), self({name: values})[name])
        encoded |= self(flat)
        return pa.table({name: encoded.get(name, table.column(name)) for name in table.column_names})

    def __call__(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return int32 ids of scalar columns of N values each; nulls are NULL, values not in the vocabulary UNSEEN."""
        prepared = {name: plain(values, name) for name, values in columns.items()}
        inputs = {self._places[name]: column.values for name, column in prepared.items() if name in self._filled}
        found = run(list(inputs) >> self._op, inputs) if any(map(len, inputs.values())) else pa.table({})
        ids = {}
        for name, column in prepared.items():
            place = self._places[name]
            if place in found.column_names:
                codes = found.column(place).to_numpy().astype(np.int32)
            else:
                codes = np.full(len(column.values), UNSEEN, dtype=np.int32)
            if column.nulls is not None:
                codes = np.where(column.nulls, np.int32(NULL), codes)
            ids[name] = pa.array(codes)
        return ids
