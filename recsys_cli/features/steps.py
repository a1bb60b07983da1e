"""What a plan is made of once it is worked out: steps, each in one table, and the keys of what is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from recsys_cli.features.columns import row_column
from recsys_cli.features.ops.op import Op, Phase

State = Mapping[tuple[int, str], pa.Table]
"""What was learnt: by position of the op in the plan, and name of the table."""
INTERACTIONS = "interactions"
GATHERED, FLAT = -1, -2
"""Positions, in the state, of columns by id that are brought to the interactions: for an op there, or for the flat layout."""
COLD = -3
"""Position, in the state, of the cold keys of each joined table: its keys that the vocabulary lacks, ascending. Of each its raw
`value`, its `row` in the table by id (behind those of all ids), the `id` that it shares, and its `count` of rows of train."""


class Lookup:
    """A step that comes from no op of the plan: the properties of an op that learns nothing and renames nothing."""

    modules: ClassVar[Mapping[str, str]] = {}
    phase: ClassVar[Phase] = "columns"
    fitted: ClassVar[bool] = False
    acts: ClassVar[bool] = True
    needs_row_numbers: ClassVar[bool] = False
    fits_on_sampled: ClassVar[bool] = False
    encodes: ClassVar[tuple[str, ...]] = ()
    learns: ClassVar[tuple[str, ...]] = ()
    renames: ClassVar[Mapping[str, str]] = {}
    may_drop: ClassVar[tuple[str, ...]] = ()
    casts: ClassVar[Mapping[str, str]] = {}

    @property
    def name(self) -> str:
        """How a message names it."""
        return type(self).__name__

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it reads."""
        raise NotImplementedError

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.reads


@dataclass(frozen=True)
class Gather(Lookup):
    """Bring columns of a table by id to the interactions, because an op there reads them.

    Attributes:
        table: The column of ids that number the table's rows.
        columns: Which of its columns.
        number: Position of the op: a column may be needed before and after an op has changed it.
    """

    table: str
    columns: tuple[str, ...]
    number: int = 0

    @property
    def reads(self) -> tuple[str, ...]:
        """The ids, and the rows of cold keys."""
        return (self.table, row_column(self.table))

    @property
    def states(self) -> tuple[str, ...]:
        """Names under which the columns by id are kept in the state."""
        return tuple(f"{self.number}/{self.table}/{column}" for column in self.columns)


@dataclass(frozen=True)
class Locate(Lookup):
    """Find the rows that cold keys have in their table, before the keys become ids: -1 for all other keys.

    Attributes:
        key: The column of raw keys.
    """

    key: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The keys."""
        return (self.key,)

    @property
    def states(self) -> tuple[str, ...]:
        """The name of the cold keys in the state."""
        return (self.key,)

    @property
    def output(self) -> str:
        """The column of rows."""
        return row_column(self.key)


@dataclass(frozen=True)
class PlanStep:
    """One op, or the part of it that works in one table.

    Attributes:
        index: Position of the op in the plan; part of the name of what it learns.
        op: The op, with those of its columns that this step computes; or a Gather or a Locate.
        home: Where it works: None for the interactions, else the column whose ids number the rows of a table.
        after: How many passes over train have to be done before what it reads is known.
        writes: The columns that it computes.
    """

    index: int
    op: Op | Gather | Locate
    home: str | None
    after: int
    writes: tuple[str, ...]

    @property
    def fitted(self) -> bool:
        """Whether it learns from train."""
        return self.op.fitted

    @property
    def acts(self) -> bool:
        """Whether rows change by it; else it only describes columns, or learns what describes them."""
        return self.op.acts

    @property
    def known(self) -> int:
        """How many passes have to be done before what it writes is known."""
        return self.after + self.fitted
