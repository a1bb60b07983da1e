"""Memory footprint of a loader, from footers of Parquet files."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_cli.features.schema import Role
from recsys_cli.loader.reading import RowGroup, groups_of, row_columns, row_groups
from recsys_cli.loader.records import Layout
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class Footprint:
    """Memory of a split.

    Attributes:
        largest: Bytes of the largest row group.
    """

    num_rows: int
    num_bytes: int
    largest: int

    def resident(self, memory: int) -> bool:
        """Return whether the split is resident with a budget in MiB, instead of streamed."""
        return self.num_bytes <= memory << 20


def footprint(data: PreparedData, split: str) -> Footprint:
    """Return the memory footprint of a split.

    Raises:
        DataError: A file does not match schema.json.
    """
    layout, groups = layout_of_split(data, split)
    return Footprint(
        num_rows=sum(group.num_rows for group in groups),
        num_bytes=layout.num_bytes(groups),
        largest=max((layout.num_bytes([group]) for group in groups), default=0),
    )


def tables_footprint(data: PreparedData) -> int:
    """Return the bytes of all dimension tables."""
    schema, total = data.schema, 0
    for key in schema.tables:
        columns = [column for column in schema.features if column.table == key]
        groups = groups_of(data.table(key), columns)
        num_rows = sum(group.num_rows for group in groups)
        # Rows store an id only in tables with cold keys.
        shared_ids = 4 * num_rows if num_rows > int(schema[key].cardinality or 0) else 0
        total += Layout.of(columns, groups).num_bytes(groups) + shared_ids
    return total


def layout_of_split(data: PreparedData, split: str, *, times: bool = False) -> tuple[Layout, list[RowGroup]]:
    """Return memory layout and row groups of a split, with timestamps if `times`."""
    schema = data.schema
    timed = schema.select(lambda column: times and column.role is Role.TIMESTAMP and not column.ragged)
    named = (*schema.features, *schema.labels, *([schema.weight] if schema.weight else []), *timed)
    columns = [column for column in named if column.table is None] + row_columns(data, split)
    groups = row_groups(data, split, columns)
    return Layout.of(columns, groups), groups
