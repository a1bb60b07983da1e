"""Group keys for NVTabular: values and null flags of each key column, both without nulls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.nan import nan_to_null
from recsys_cli.etl.nvtabular_engine.frames import fit, nvtabular, quiet, run, schema, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements, plain, raw
from recsys_cli.ops.grouping import Group, members


@dataclass(frozen=True)
class Keys:
    """Group keys of rows.

    Attributes:
        types: Raw types of the key columns.
        names: Names of the key columns in messages.
        columns: Values and null flags per key column, under neutral names.
    """

    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    columns: Mapping[str, pa.Array]

    @classmethod
    def of(cls, group: Group, rows: pa.Table) -> Keys:
        """Return the keys of a group."""
        return cls.from_parts({name: elements(rows.column(name))[0] for name in members(group)})

    @classmethod
    def from_parts(cls, parts: Mapping[str, pa.Array]) -> Keys:
        """Return keys of key columns."""
        columns: dict[str, pa.Array] = {}
        for at, (name, values) in enumerate(parts.items()):
            prepared = plain(values, name)
            nulls = np.zeros(len(values), dtype=np.int8) if prepared.nulls is None else prepared.nulls.astype(np.int8)
            columns |= {f"k{at}": prepared.values, f"n{at}": pa.array(nulls)}
        return cls(tuple(values.type for values in parts.values()), tuple(parts), columns)

    def restore(self, result: pa.Table) -> dict[str, pa.Array]:
        """Return the key columns `key0`, `key1`, … of NVTabular's result, in raw types and with nulls."""
        parts = {}
        for at, (kind, name) in enumerate(zip(self.types, self.names, strict=True)):
            values = raw(result.column(f"k{at}").combine_chunks(), kind, name)
            is_null = pc.not_equal(result.column(f"n{at}").combine_chunks(), 0)
            parts[f"key{at}"] = pc.if_else(is_null, pa.scalar(None, values.type), values)
        return parts


def join_by_key(keys: Keys, statistics: pa.Table, columns: Sequence[str]) -> dict[str, pa.Array]:
    """Left join of statistics by group key; float64, null without a match."""
    rows = len(keys.columns["k0"])
    if rows == 0 or statistics.num_rows == 0:
        return {name: pa.nulls(rows, pa.float64()) for name in columns}
    parts = {name: statistics.column(f"key{at}").combine_chunks() for at, name in enumerate(keys.names)}
    names = {name: f"j{at}" for at, name in enumerate(columns)}
    values = {
        position: statistics.column(name).combine_chunks().cast(pa.float64()).fill_null(float("nan"))
        for name, position in names.items()
    }
    on = list(keys.columns)
    library = nvtabular()
    with quiet():
        frame = to_frame({**Keys.from_parts(parts).columns, **values})
        external = library.Dataset(frame, schema=schema(frame))
        graph = on >> library.ops.JoinExternal(external, on=on, columns_ext=[*on, *names.values()])
    joined = run(graph, keys.columns)
    return {name: nan_to_null(joined.column(position).combine_chunks()) for name, position in names.items()}


def grouped(
    op: Any,
    files: Literal["categories", "stats"],
    keys: Keys,
    columns: Mapping[str, pa.Array],
    outputs: Mapping[str, str],
) -> pa.Table:
    """Fit an op on columns by key; return the keys and its statistics.

    `files` is the op's attribute with their paths; `outputs` maps names to NVTabular's, without the names of the keys.
    """
    names = list(keys.columns)
    if len(keys.columns[names[0]]) == 0:
        return pa.table({**keys.columns, **{name: pa.array([], pa.float64()) for name in outputs}})
    library = nvtabular()
    with quiet():
        groups = library.ColumnSelector(subgroups=[library.ColumnSelector(names)])
        fit(groups >> op, {**keys.columns, **columns})
    (path,) = getattr(op, files).values()
    found = pq.read_table(path)
    statistics = {name: found.column("_".join((*names, output))) for name, output in outputs.items()}
    return pa.table({name: found.column(name) for name in names} | statistics)


def replaced(rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Add columns to rows, or replace the columns of the same names."""
    kept = {name: rows.column(name) for name in rows.column_names if name not in columns}
    return pa.table(kept | dict(columns))
