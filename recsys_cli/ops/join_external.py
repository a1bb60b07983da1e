"""Columns of another table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Op


class JoinExternal(Op):
    """Join columns of another table of the dataset to the interactions by a key, many to one.

    In the star layout the joined columns are stored once per key: a row for each id, then a row for each key of the table
    that is absent from train. A cold key thus shares its id and embedding, but has its own features, in both layouts and
    in new rows.
    Nulls: a left join; keys absent from the table give nulls, or an empty list.
    Fitted: nothing. Ops on joined columns are fitted over the train interactions.
    Output: the columns of the table, unchanged, in the order of the interactions. Duplicate keys in the table are an error.
    """

    op: Literal["JoinExternal"] = "JoinExternal"
    table: str
    """Name of the table; `recsys ls datasets` lists them."""
    on: str
    """Key column of the interactions and of the table; a later op has to categorify it."""
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns of the table to join."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The key; the columns belong to the table."""
        return (self.on,)

    @property
    def joined_by(self) -> str:
        """The key."""
        return self.on

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns of the table."""
        return {name: inputs[name] for name in self.columns}
