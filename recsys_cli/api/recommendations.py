"""Recommendations as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from recsys_cli.etl.frames import Library


@dataclass(frozen=True, repr=False)
class Recommendations:
    """Top-k items by user: columns `user`, `item`, `rank` (from 1) and `score`, in the given order of users.

    Attributes:
        table: The rows in Arrow; ids are raw ids in the types of the data.
    """

    table: pa.Table

    def to_frame(self, library: Library = "polars") -> Any:
        """Return the rows as a DataFrame of `polars` or `pandas`, or as an Arrow table (`arrow`)."""
        from recsys_cli.etl.frames import from_arrow

        return from_arrow(self.table, library)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return repr(self.to_frame())

    def _repr_html_(self) -> str:
        return str(self.to_frame()._repr_html_())
