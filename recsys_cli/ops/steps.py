"""Steps of a compiled plan, each in one table, and the keys of the fitted state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from recsys_cli.features.columns import row_column
from recsys_cli.ops.op import Op, Phase

State = Mapping[tuple[int, str], pa.Table]
"""Fitted state, by position of the op in the plan and name of the table."""
INTERACTIONS = "interactions"
GATHERED, FLAT = -1, -2
"""Positions in the state of dimension columns joined to the interactions: for an op, or for the flat layout."""
COLD = -3
"""Position in the state of the cold keys of each joined table, ascending: keys outside the vocabulary. Columns: the raw
`value`, its `row` in the dimension table (after the rows of all ids), its shared `id`, and its `count` of train rows."""


class Lookup:
    """Step without an op in the plan."""

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
        """Name in messages."""
        return type(self).__name__

    @property
    def reads(self) -> tuple[str, ...]:
        """Input columns."""
        raise NotImplementedError

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """Input columns."""
        return self.reads


@dataclass(frozen=True)
class Gather(Lookup):
    """Lookup join of dimension columns to the interactions, by a column of ids, for the op at position `number`."""

    table: str
    columns: tuple[str, ...]
    number: int = 0

    @property
    def reads(self) -> tuple[str, ...]:
        """The ids, and the rows of cold keys."""
        return (self.table, row_column(self.table))

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the joined columns in the state."""
        return tuple(f"{self.number}/{self.table}/{column}" for column in self.columns)


@dataclass(frozen=True)
class Locate(Lookup):
    """Lookup of the table rows of cold keys, before the keys become ids: -1 for other keys."""

    key: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The keys."""
        return (self.key,)

    @property
    def states(self) -> tuple[str, ...]:
        """Name of the cold keys in the state."""
        return (self.key,)

    @property
    def output(self) -> str:
        """Column of row numbers."""
        return row_column(self.key)


@dataclass(frozen=True)
class PlanStep:
    """Op, or a part of it, on one table.

    Attributes:
        index: Position of the op in the plan; part of the key of its state.
        home: Key column of the dimension table; None for the interactions.
        after: Number of passes over train before the inputs are available.
    """

    index: int
    op: Op | Gather | Locate
    home: str | None
    after: int
    writes: tuple[str, ...]

    @property
    def fitted(self) -> bool:
        """Whether the op is fitted on train."""
        return self.op.fitted

    @property
    def acts(self) -> bool:
        """Whether the step changes rows; False for annotations."""
        return self.op.acts

    @property
    def ready(self) -> int:
        """Number of passes over train before the outputs are available."""
        return self.after + self.fitted
