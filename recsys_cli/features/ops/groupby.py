"""Groupby: the interactions of a user, or of a session, become one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops.fields import FrozenDict, Names, several
from recsys_cli.features.ops.op import Op, Phase, numbers, scalars
from recsys_cli.features.spec import Spec

Aggregation = Literal["list", "first", "last", "count", "nunique", "sum", "mean", "median", "std", "var", "min", "max"]
CALCULATED: tuple[Aggregation, ...] = ("sum", "mean", "median", "std", "var")
COUNTED: tuple[Aggregation, ...] = ("count", "nunique")


class Groupby(Op):
    """Make one row of a user's or a session's interactions: lists of what was seen, the first, the last, counts, means.

    The rows of a group, equal in all columns of `by`, are ordered by `order_by` (nulls come last) and, where that is
    equal or not given, by the order of the input. It looks at the whole input, before the split, never at a part of it,
    so a user may span files; with split.method=files each given set of files is grouped on its own. As in pandas and
    NVTabular, rows with a null (or NaN) in a column of `by` are left out. Afterwards there is one row for each group, in
    the order of their first rows in the input, and no columns but those of `by` and the aggregations; those of `by` that
    are no feature can be named in `drop`.
    `list`, `first` and `last` keep nulls (NaN becomes null). The others skip them: of nothing but nulls `count`,
    `nunique` and `sum` are 0 and the rest null. `std` and `var` are those of a sample: null for one row, 0 for a constant
    column. An empty input gives no row. List columns cannot be aggregated. Nothing is fitted; a Categorify after it
    encodes lists by element.
    Output: `<column>_<aggregation>`. `list` holds values of the column's type; `first`, `last`, `min` and `max` have it;
    `count` and `nunique` are int32; the rest float64, written as float32.
    """

    phase: ClassVar[Phase] = "rows"
    replaces: ClassVar[bool] = True

    op: Literal["Groupby"] = "Groupby"
    by: Annotated[Names, Field(min_length=1)]
    """Columns that make a group (NVTabular: `groupby_cols`)."""
    aggs: dict[str, Annotated[tuple[Aggregation, ...], BeforeValidator(several)]] = Field(min_length=1)
    """Column by column what to compute: list, first, last, count, nunique, sum, mean, median, std, var, min, max."""
    order_by: Names = ()
    """Columns by which a group is ordered, most important first, such as the timestamp (NVTabular: `sort_cols`)."""
    name_sep: str = "_"
    """What stands between the column and the aggregation in a new name."""
    ascending: bool = True
    """False turns the lists around, the newest first; `first` is the earliest all the same, as in NVTabular."""

    @field_validator("aggs")
    @classmethod
    def _frozen(cls, aggs: dict[str, tuple[Aggregation, ...]]) -> dict[str, tuple[Aggregation, ...]]:
        return FrozenDict(aggs)

    @property
    def reads(self) -> tuple[str, ...]:
        """The group, its order, and the columns to aggregate."""
        return tuple(dict.fromkeys((*self.by, *self.order_by, *self.aggs)))

    def made(self) -> Iterator[tuple[str, str, Aggregation]]:
        """Yield the name of each new column, the column that it is computed from, and how."""
        for column, aggregations in self.aggs.items():
            for aggregation in aggregations:
                yield f"{column}{self.name_sep}{aggregation}", column, aggregation

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns of `by` and the aggregations.

        Raises:
            ConfigError: A column cannot be aggregated in that way, or two new ones have one name.
        """
        scalars(inputs)
        described: dict[str, Spec | None] = {name: replace(inputs[name], type=inputs[name].element) for name in self.by}
        for name, column, aggregation in self.made():
            if name in described:
                raise ConfigError(f"it makes {name!r} twice; another name_sep may help")
            described[name] = _aggregated(column, inputs[column], aggregation)
        return described


def _aggregated(column: str, spec: Spec, aggregation: Aggregation) -> Spec:
    if aggregation in CALCULATED:
        numbers({column: spec})
        return Spec(pa.float64())
    if aggregation in COUNTED:
        return Spec(pa.int32(), dtype="int32")
    return replace(spec, type=pa.list_(spec.element) if aggregation == "list" else spec.element)
