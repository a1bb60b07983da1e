"""Prepared rows to parquet files, the same for every engine, counting what a reader will want to know on the way."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.features.schema import NULL, UNSEEN, Column, Kind, Role, Schema

ROW_GROUP_ROWS = 1 << 18
"""Rows of a row group: what a streaming loader reads at a time."""


@dataclass
class ShardWriter:
    """Writes the shards of one split in the schema's columns and types.

    Attributes:
        folder: The split's folder.
        schema: The prepared columns.
        rows: Rows written so far.
        missing: For each categorical column how many values (elements, where ragged) are null and unseen, and how many there are.
    """

    folder: Path
    schema: Schema
    rows: int = 0
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def write(self, shard: int, table: pa.Table) -> None:
        """Write one shard; may be called from several threads."""
        columns = self.schema.in_table(None)
        table = pa.table({column.name: _typed(table.column(column.name), column) for column in columns})
        write_table(table, self.folder / f"{shard:05d}.parquet")
        counts = {c.name: _count(table.column(c.name)) for c in columns if c.kind is Kind.CATEGORICAL}
        with self._guard:
            self.rows += table.num_rows
            for name, counted in counts.items():
                self.missing.setdefault(name, Counter()).update(counted)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file, plainly: shuffled ids and times hardly compress, and trying costs as much as all the rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=ROW_GROUP_ROWS)


def typed_table(table: pa.Table, columns: tuple[Column, ...]) -> pa.Table:
    """Bring a table of joined features to the schema's types."""
    return pa.table({column.name: _typed(table.column(column.name), column) for column in columns})


def _typed(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    if column.role is Role.TIMESTAMP and pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("s"), safe=False)
    kind = pa.type_for_alias(column.dtype)
    values = values.cast(pa.list_(kind) if column.ragged else kind, safe=False)
    return pc.fill_null(values, float("nan")) if column.dtype.startswith("float") and not column.ragged else values


def _count(values: pa.ChunkedArray) -> Counter[str]:
    if pa.types.is_list(values.type):
        values = pc.list_flatten(values)
    nulls, unseen = (pc.sum(pc.equal(values, code)).as_py() or 0 for code in (NULL, UNSEEN))
    return Counter({"null": nulls, "unseen": unseen, "values": len(values)})
