"""List lengths in the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Names, Op, Tables, lists
from recsys_cli.packages import pa, pc, pl

SHORTEST, LONGEST = "shortest", "longest"
"""Columns of the fitted state, in one row."""


class ValueCount(Op):
    """Record the minimum and maximum list length of columns in schema.json, for the shape of tensors.

    Fitted: the minimum and maximum number of elements in train; of joined columns over the train interactions. Other
    splits may hold shorter and longer lists; limit them with ListSlice.
    Nulls: null and NaN elements count; a null list has length 0. Train without rows gives 0 and 0.
    Output: the columns, unchanged; the lengths follow a column through ListSlice and ops that keep lengths.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    op: Literal["ValueCount"] = "ValueCount"
    columns: Annotated[Names, Field(min_length=1)]
    """List columns."""

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns, unchanged, with one element in each list before fitting."""
        return {name: replace(spec, lengths=(1, 1)) for name, spec in lists(inputs).items()}

    def fitted_output(self, name: str, spec: Spec, state: Tables) -> Spec:
        """Add the fitted list lengths."""
        return replace(spec, lengths=tuple(state[name].column(end)[0].as_py() for end in (SHORTEST, LONGEST)))

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute the shortest and longest list of each column; null without rows."""
        queries = {}
        for column in self.columns:
            lengths = pl.col(column).list.len().fill_null(0).cast(pl.Int64).alias(SHORTEST)
            queries[column] = (
                frame.filter(weight > 0)
                .select(lengths)
                .select(pl.col(SHORTEST).min(), pl.col(SHORTEST).max().alias(LONGEST))
            )
        return queries

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return the shortest and longest list; parts without rows have nulls."""
        stacked = pa.concat_tables(parts)
        shortest, longest = pc.min(stacked.column(SHORTEST)), pc.max(stacked.column(LONGEST))
        ends = {SHORTEST: shortest, LONGEST: longest}
        return pa.table({name: pa.array([end.as_py()], pa.int64()) for name, end in ends.items()})

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the lengths; 0 without rows."""
        return {
            column: pa.table({name: merged[column].column(name).fill_null(0) for name in (SHORTEST, LONGEST)})
            for column in self.columns
        }
