"""How much memory a loader is going to take, from the files' footers alone: no row is read."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_cli.loader.reading import RowGroup, groups_of, row_columns, row_groups
from recsys_cli.loader.records import Layout
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class Footprint:
    """What a split takes in memory.

    Attributes:
        num_rows: Rows of the split.
        num_bytes: All of them, as the loader keeps them.
        largest: The largest part of a file that is read at once.
    """

    num_rows: int
    num_bytes: int
    largest: int

    def resident(self, memory: int) -> bool:
        """Whether a loader with a budget of so many MiB keeps the split; otherwise it streams it, within the budget."""
        return self.num_bytes <= memory << 20


def footprint(data: PreparedData, split: str) -> Footprint:
    """Return what a split takes.

    Raises:
        DataError: The files are not what schema.json says.
    """
    layout, groups = contents(data, split)
    return Footprint(
        num_rows=sum(group.num_rows for group in groups),
        num_bytes=layout.num_bytes(groups),
        largest=max((layout.num_bytes([group]) for group in groups), default=0),
    )


def tables_footprint(data: PreparedData) -> int:
    """Return the bytes that the joined tables take, which are looked up for each batch."""
    schema, total = data.schema, 0
    for key in schema.tables:
        columns = [column for column in schema.features if column.table == key]
        groups = groups_of(data.table(key), columns)
        num_rows = sum(group.num_rows for group in groups)
        shared_ids = (
            4 * num_rows if num_rows > int(schema[key].cardinality or 0) else 0
        )  # only where there are cold keys
        total += Layout.of(columns, groups).num_bytes(groups) + shared_ids
    return total


def contents(data: PreparedData, split: str) -> tuple[Layout, list[RowGroup]]:
    """Return how the rows of a split lie in memory, and the parts of files they come from."""
    schema = data.schema
    named = (*schema.features, *schema.labels, *([schema.weight] if schema.weight else []))
    columns = [column for column in named if column.table is None] + row_columns(data, split)
    groups = row_groups(data, split, columns)
    return Layout.of(columns, groups), groups
