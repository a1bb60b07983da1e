"""Steps of a compiled plan, each in one table, and the keys of the fitted state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import FIRST
from recsys_cli.ops.op import Forms, Op, Tables
from recsys_cli.ops.values import Apply, Columns, Types, Values, comparable, from_arrow, taken
from recsys_cli.ops.vocabulary import ABSENT, Ids, VocabularyIndex, encoder_of
from recsys_cli.packages import np, pa, pl

State: TypeAlias = "Mapping[tuple[int, str], pa.Table]"
"""Fitted state, by position of the op in the plan and name of the table."""
INTERACTIONS = "interactions"
GATHERED, FLAT = -1, -2
"""Positions in the state of dimension columns joined to the interactions: for an op, or for the flat layout."""
COLD = -3
"""Position in the state of the cold keys of each joined table, ascending: keys outside the vocabulary. Columns: the raw
`value`, its `row` in the dimension table (after the rows of all ids), its shared `id`, and its `count` of train rows."""


@dataclass(frozen=True)
class Gather(Forms):
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

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Add the table's columns by the id of each row, or by the table row of its cold key."""
        tables = {}
        for state_name, column in zip(self.states, self.columns, strict=True):
            tables[column] = from_arrow(state[state_name].column(column))
            types[column] = state[state_name].schema.field(column).type
        ids, cold = self.reads
        has_cold = cold in types

        def apply(columns: Columns, rows: int) -> None:
            table_rows = columns[ids].data
            if has_cold:
                table_rows = np.maximum(table_rows, columns[cold].data)
            for column, values in tables.items():
                columns[column] = taken(values, table_rows)

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add the table's columns by the id of each row, or by the table row of its cold key."""
        present = frame.collect_schema().names()
        row = pl.max_horizontal(name for name in self.reads if name in present)
        return frame.with_columns(
            pl.lit(pl.from_arrow(state[name].column(column))).gather(row).alias(column)
            for name, column in zip(self.states, self.columns, strict=True)
        )

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Add the table's columns in Arrow, without a conversion of their values."""
        ids = [rows.column(name).to_numpy() for name in self.reads if name in rows.column_names]
        table_rows = pa.array(np.maximum.reduce(ids))
        columns = {name: rows.column(name) for name in rows.column_names}
        for name, column in zip(self.states, self.columns, strict=True):
            columns[column] = state[name].column(column).take(table_rows)
        return pa.table(columns)


@dataclass(frozen=True)
class Locate(Forms):
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

    def numpy(self, state: Tables, types: Types, indexes: Mapping[str, VocabularyIndex] | None = None) -> Apply:
        """Add the column of table rows; ABSENT for keys with an id. An index with the name of that column is not built."""
        cold = state[self.key]
        built = indexes or {}
        index = built[self.output] if self.output in built else VocabularyIndex.build(cold.column("value"))
        table_rows = np.append(cold.column("row").to_numpy(), np.int32(ABSENT))
        types[self.output] = pa.int32()

        def apply(columns: Columns, rows: int) -> None:
            keys = comparable(columns[self.key])
            found = table_rows[index.positions(keys.data)]
            if keys.nulls is not None:
                found[keys.nulls] = ABSENT
            columns[self.output] = Values(found)

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add the column of table rows, in Arrow memory."""

        def located(keys: pl.Series) -> pl.Series:
            return pl.Series(self.output, self.located(keys.to_arrow(), state))

        return frame.with_columns(pl.col(self.key).map_batches(located, return_dtype=pl.Int32()).alias(self.output))

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Add the column of table rows."""
        return rows.append_column(self.output, pa.array(self.located(rows.column(self.key).combine_chunks(), state)))

    def located(self, keys: pa.Array, state: Tables) -> Ids:
        """Return the table row of each raw key; ABSENT for keys with an id."""
        cold = state[self.key]
        codes = encoder_of(cold)(keys)
        rows = np.append(cold.column("row").to_numpy(), np.int32(ABSENT))
        return rows[np.where(codes < FIRST, -1, codes - FIRST)]


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
