"""Statistics of the group of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec
from recsys_cli.ops.grouping import Group, GroupOp, check_groups, members, name_of
from recsys_cli.ops.op import numbers, scalars

Statistic = Literal["count", "sum", "mean", "std", "var", "min", "max"]


class JoinGroupby(GroupOp):
    """Add statistics of each row's group: its count in train, and aggregates of numeric columns.

    Fitted: the statistics of each group over train. `count` is the number of rows; the others aggregate a column of
    `cont_cols` without null and NaN. `std` and `var` have ddof 1: null for one value, 0 for a constant. Without values the
    sum is 0, the rest null. With an infinite value a statistic is infinite, or null if undefined.
    Nulls: null or NaN in a group column is a group of its own. A group absent from train has count 0, the rest null.
    Encoded ids and raw values can be grouped.
    Lists: refused.
    Output: `<columns>_count` (int32) and `<columns>_<cont_col>_<statistic>` (float32), next to the inputs. If all inputs
    belong to one joined table, so do the outputs, and each row counts with its number of train interactions. Otherwise
    they belong to the interactions, and new rows need no `cont_cols`.
    A statistic of the label contains the row's own label and is refused: TargetEncoding is out of fold.
    NVTabular 23.08: differs in four points. Here rows with a null are counted, means ignore missing values, variances
    of large values stay exact, and groups absent from train raise no error.
    """

    op: Literal["JoinGroupby"] = "JoinGroupby"
    columns: tuple[Group, ...] = Field(min_length=1)
    """Columns to group by; a nested list is one group by a combination."""
    cont_cols: tuple[str, ...] = ()
    """Numeric columns to aggregate."""
    stats: tuple[Statistic, ...] = Field(default=("count",), min_length=1)
    """Statistics of each group."""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns to aggregate."""
        return self.cont_cols

    @property
    def described(self) -> tuple[Statistic, ...]:
        """The aggregates: all statistics except the count."""
        return tuple(stat for stat in self.stats if stat != "count")

    def written(self, group: Group) -> dict[str, str]:
        """Return the output names of a group, by statistic in the group's table."""
        name = name_of(group)
        names = {"count": f"{name}_count"} if "count" in self.stats else {}
        for position, column in enumerate(self.cont_cols):
            names |= {f"{stat}{position}": f"{name}_{column}_{stat}" for stat in self.described}
        return names

    def exposed(self, output: str) -> tuple[str, ...]:
        """Return the group columns, and the aggregated column of a statistic."""
        group = next(group for group in self.columns if output in self.written(group).values())
        start = f"{name_of(group)}_"
        return (*members(group), *(c for c in self.cont_cols if output in {f"{start}{c}_{s}" for s in self.described}))

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the statistics."""
        if bool(self.described) != bool(self.cont_cols):
            raise ConfigError("stats other than count need cont_cols, and cont_cols needs them; set both or neither")
        scalars(inputs)
        numbers({name: inputs[name] for name in self.cont_cols})
        described: dict[str, Spec | None] = {}
        for group in self.columns:
            for stat, name in self.written(group).items():
                described[name] = Spec(pa.int64(), dtype="int32") if stat == "count" else Spec(pa.float64())
        names = [name for group in self.columns for name in self.written(group).values()]
        check_groups(self.columns, names)
        check_groups((), self.learns)
        return described
