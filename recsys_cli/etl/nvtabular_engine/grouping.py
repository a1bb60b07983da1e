"""Group keys as NVTabular can take them: of each column its values, and a flag where there is none, both without a null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, run, schema, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements, plain, raw
from recsys_cli.features.ops.grouping import Group, members


@dataclass(frozen=True)
class Keys:
    """The keys of some rows.

    Attributes:
        types: The raw type of each part.
        names: What the parts are called in messages.
        columns: Values and flags without a null, two for each part; names are NVTabular's to make other names of.
    """

    types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    columns: Mapping[str, pa.Array]

    @classmethod
    def of(cls, group: Group, rows: pa.Table) -> Keys:
        """Return the keys of a group."""
        return cls.made({name: elements(rows.column(name))[0] for name in members(group)})

    @classmethod
    def made(cls, parts: Mapping[str, pa.Array]) -> Keys:
        """Return keys of given parts."""
        columns: dict[str, pa.Array] = {}
        for at, (name, values) in enumerate(parts.items()):
            prepared = plain(values, name)
            nulls = np.zeros(len(values), dtype=np.int8) if prepared.nulls is None else prepared.nulls.astype(np.int8)
            columns |= {f"k{at}": prepared.values, f"n{at}": pa.array(nulls)}
        return cls(tuple(values.type for values in parts.values()), tuple(parts), columns)

    def back(self, found: pa.Table) -> dict[str, pa.Array]:
        """Return the parts `key0`, `key1`, … of a table of NVTabular's, in their raw types and with their nulls."""
        parts = {}
        for at, (kind, name) in enumerate(zip(self.types, self.names, strict=True)):
            values = raw(found.column(f"k{at}").combine_chunks(), kind, name)
            is_null = pc.not_equal(found.column(f"n{at}").combine_chunks(), 0)
            parts[f"key{at}"] = pc.if_else(is_null, pa.scalar(None, values.type), values)
        return parts


def bring(keys: Keys, known: pa.Table, columns: Sequence[str]) -> dict[str, pa.Array]:
    """Return columns of a table by key (float64), null where the table does not have the key: a JoinExternal."""
    rows = len(keys.columns["k0"])
    if rows == 0 or known.num_rows == 0:
        return {name: pa.nulls(rows, pa.float64()) for name in columns}
    parts = {name: known.column(f"key{at}").combine_chunks() for at, name in enumerate(keys.names)}
    names = {name: f"j{at}" for at, name in enumerate(columns)}
    brought = {
        position: known.column(name).combine_chunks().cast(pa.float64()).fill_null(float("nan"))
        for name, position in names.items()
    }
    on = list(keys.columns)
    library = nvtabular()
    with quiet():
        frame = to_frame({**Keys.made(parts).columns, **brought})
        external = library.Dataset(frame, schema=schema(frame))
        graph = on >> library.ops.JoinExternal(external, on=on, columns_ext=[*on, *names.values()])
    joined = run(graph, keys.columns)
    return {name: _known(joined.column(position)) for name, position in names.items()}


def _known(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def replaced(rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return rows with columns added, or in the place of those of their names."""
    kept = {name: rows.column(name) for name in rows.column_names if name not in columns}
    return pa.table(kept | dict(columns))
