"""JoinExternal: bring in the columns of another table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from recsys_cli.features.ops.op import Op
from recsys_cli.features.spec import Spec


class JoinExternal(Op):
    """Bring columns of a table of the dataset to the interactions, by a key; many interactions to one row.

    A left join: interactions without a row in the table get nulls (an empty list for a list column). Keys that stand
    twice in the table are an error that names them. Nothing is fitted. The order of the interactions stays.

    In the star layout the joined columns are stored once per key: a row for each id, and behind them one for each key of the
    table that train does not know. So an unseen key shares its id, and hence its embedding, with others and keeps its own
    columns, in both layouts and in new rows. What is fitted on joined columns is fitted on the interactions of train.
    """

    op: Literal["JoinExternal"] = "JoinExternal"
    table: str
    """Name of the table (`recsys ls datasets` shows which there are)."""
    on: str
    """The key column, in the interactions and in the table; it has to be categorified by a later op."""
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns of the table to bring in."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The key; the columns are the table's."""
        return (self.on,)

    @property
    def joined_by(self) -> str:
        """The key."""
        return self.on

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the joined columns, given those of the table: they come as they are."""
        return {name: inputs[name] for name in self.columns}
