"""JoinExternal on NVTabular: table rows by encoded id, and their lookup join to interactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.join_keys import keyed
from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, run, to_frame
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import is_list
from recsys_cli.ops import JoinExternal

KEY = "key"


def by_id(op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
    """See `Engine.join`."""
    values = keys.column("value").combine_chunks()
    table = keyed(op, table, values.type)
    rows = pc.index_in(values, value_set=table.column(op.on).combine_chunks())
    return table.select(list(op.columns)).take(pa.concat_arrays([pa.nulls(FIRST, pa.int32()), rows]))


class TableLookup:
    """Lookup of table rows by id, in a workflow of one JoinExternal op."""

    def __init__(self, table: pa.Table) -> None:
        names = {name: f"j{position}" for position, name in enumerate(table.column_names)}
        columns = {names[name]: _without_nulls(table.column(name)) for name in table.column_names}
        self._types = pa.schema([(name, columns[position].type) for name, position in names.items()])
        self._names = names
        self._graph = _join({KEY: pa.array(np.arange(table.num_rows, dtype=np.int32)), **columns})

    def __call__(self, ids: pa.Array) -> pa.Table:
        """Return one table row per id."""
        if len(ids) == 0:
            return self._types.empty_table()
        joined = run(self._graph, {KEY: ids})
        return joined.select(list(self._names.values())).rename_columns(list(self._names)).cast(self._types)


def _join(table: Mapping[str, pa.Array]) -> Any:
    library = nvtabular()
    with quiet():
        frame = to_frame(table)
        # A schema of names only: type inference reads the first row, possibly an empty list.
        names = library.Schema([library.ColumnSchema(name) for name in table])
        external = library.Dataset(frame, schema=names)
        return [KEY] >> library.ops.JoinExternal(external, on=KEY, columns_ext=list(table))


def _without_nulls(column: pa.ChunkedArray) -> pa.Array:
    """Keep lists and null-free integers; convert others to float64 with NaN."""
    values = pa.concat_arrays(column.chunks)
    if is_list(values.type) or (pa.types.is_integer(values.type) and values.null_count == 0):
        return values
    return values.cast(pa.float64(), safe=False).fill_null(float("nan"))
