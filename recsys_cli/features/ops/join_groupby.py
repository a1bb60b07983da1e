"""JoinGroupby: statistics of a row's group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.grouping import Group, GroupOp, check_groups, name_of
from recsys_cli.features.ops.op import numbers, scalars
from recsys_cli.features.spec import Spec

Statistic = Literal["count", "sum", "mean", "std", "var", "min", "max"]


class JoinGroupby(GroupOp):
    """Give each row what is known of its group: how many rows of train it has, and statistics of numbers in it.

    Fitted: the statistics of each group over train. `count` is the number of rows; the others are of the values of a
    column of `cont_cols` in them, without null and NaN. `std` and `var` have ddof 1: null for a single value, 0 for
    a constant. A group without a value has sum 0 and null for the rest. Statistics with an infinite value in it may be
    infinite, or null where they are not defined.
    A null (or NaN) in a group's column is a value like any other: a group of their own. A group that train does not
    have, and an empty train split, gives count 0 and null for the rest. Encoded ids may be grouped by as well as raw
    values. A list column is an error.
    Output: `<columns>_count` (int32), and `<columns>_<cont_col>_<statistic>` (float32); the inputs stay. They live where
    all of the inputs do: in a joined table if those are of one table, where rows count as the interactions that they
    stand for; else in the interactions, and rows need no `cont_cols` to be given what is known.
    Other than NVTabular 23.08: rows with a null are counted, a mean is that of the values that are there, variances do
    not lose their digits where values are large, and groups that train does not have are no error.
    """

    op: Literal["JoinGroupby"] = "JoinGroupby"
    columns: tuple[Group, ...] = Field(min_length=1)
    """Columns to group by; a list of columns makes one group."""
    cont_cols: tuple[str, ...] = ()
    """Columns of numbers to describe."""
    stats: tuple[Statistic, ...] = Field(default=("count",), min_length=1)
    """What to tell of each group."""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are described."""
        return self.cont_cols

    @property
    def described(self) -> tuple[Statistic, ...]:
        """The statistics of columns: all but the count."""
        return tuple(stat for stat in self.stats if stat != "count")

    def written(self, group: Group) -> dict[str, str]:
        """Return the names of a group's outputs, by the name of the statistic in the group's table."""
        name = name_of(group)
        names = {"count": f"{name}_count"} if "count" in self.stats else {}
        for position, column in enumerate(self.cont_cols):
            names |= {f"{stat}{position}": f"{name}_{column}_{stat}" for stat in self.described}
        return names

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns of statistics."""
        if bool(self.described) != bool(self.cont_cols):
            raise ConfigError("cont_cols says of which columns the stats other than count are; give both or none")
        scalars(inputs)
        numbers({name: inputs[name] for name in self.cont_cols})
        found: dict[str, Spec | None] = {}
        for group in self.columns:
            for stat, name in self.written(group).items():
                found[name] = Spec(pa.int64(), dtype="int32") if stat == "count" else Spec(pa.float64())
        names = [name for group in self.columns for name in self.written(group).values()]
        check_groups(self.columns, names)
        check_groups((), self.learns)
        return found
