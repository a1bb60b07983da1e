"""Recommendations as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsys_cli.errors import ConfigError
from recsys_cli.tabular import Tabular

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class Recommendations(Tabular):
    """Top-k items by user: columns `user`, `item`, `rank` (from 1) and `score`, in the given order of users.

    Attributes:
        table: The rows in Arrow; ids are raw ids in the types of the data.
    """

    table: pa.Table

    def _to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return repr(self.to_frame())


def distinct(users: Iterable[Any]) -> list[Any]:
    """Return user ids without duplicates, in order.

    Raises:
        ConfigError: An element cannot be an id.
    """
    try:
        return list(dict.fromkeys(users))
    except TypeError as error:
        raise ConfigError(
            f"users has to be a flat list of user ids: {error}", hint="pass a list or a column"
        ) from error
