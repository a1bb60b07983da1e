"""One row per user or session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import BeforeValidator, Field, field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec
from recsys_cli.ops.fields import FrozenDict, Names, as_tuple
from recsys_cli.ops.op import Op, Phase, numbers, scalars

Aggregation = Literal["list", "first", "last", "count", "nunique", "sum", "mean", "median", "std", "var", "min", "max"]
CALCULATED: tuple[Aggregation, ...] = ("sum", "mean", "median", "std", "var")
COUNTED: tuple[Aggregation, ...] = ("count", "nunique")


class Groupby(Op):
    """Aggregate the interactions of a user or a session to one row: item lists, first and last values, counts, means.

    Rows of a group, equal in all columns of `by`, follow `order_by` (nulls last), then the order of the input. The whole
    input is grouped before the split; with split.method=files, each split on its own. Groups follow their first row in
    the input. Only the columns of `by` and the aggregations remain; list those of `by` that are no features in `drop`.
    Nulls: rows with a null or NaN in `by` are dropped, as in pandas and NVTabular. `list`, `first` and `last` keep nulls;
    the others skip them: without values `count`, `nunique` and `sum` are 0, the rest null. `std` and `var` have ddof 1:
    null for one value, 0 for a constant.
    Lists: cannot be aggregated.
    Fitted: nothing; a later Categorify encodes lists by element.
    Output: `<column>_<aggregation>`. `list`, `first`, `last`, `min` and `max` have the type of the column; `count` and
    `nunique` are int32; the rest float64, written as float32.
    """

    phase: ClassVar[Phase] = "rows"
    replaces: ClassVar[bool] = True

    op: Literal["Groupby"] = "Groupby"
    by: Annotated[Names, Field(min_length=1)]
    """Group columns (NVTabular: `groupby_cols`)."""
    aggs: dict[str, Annotated[tuple[Aggregation, ...], BeforeValidator(as_tuple)]] = Field(min_length=1)
    """Aggregations by column: list, first, last, count, nunique, sum, mean, median, std, var, min, max."""
    order_by: Names = ()
    """Columns that order a group, most important first, such as the timestamp (NVTabular: `sort_cols`)."""
    name_sep: str = "_"
    """Separator between column and aggregation in output names."""
    ascending: bool = True
    """False reverses the lists, newest first; `first` stays the earliest, as in NVTabular."""

    @field_validator("aggs")
    @classmethod
    def _frozen(cls, aggs: dict[str, tuple[Aggregation, ...]]) -> dict[str, tuple[Aggregation, ...]]:
        return FrozenDict(aggs)

    @property
    def reads(self) -> tuple[str, ...]:
        """The group, its order, and the columns to aggregate."""
        return tuple(dict.fromkeys((*self.by, *self.order_by, *self.aggs)))

    def made(self) -> Iterator[tuple[str, str, Aggregation]]:
        """Yield output name, input column and aggregation."""
        for column, aggregations in self.aggs.items():
            for aggregation in aggregations:
                yield f"{column}{self.name_sep}{aggregation}", column, aggregation

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the group columns and the aggregations."""
        scalars(inputs)
        described: dict[str, Spec | None] = {name: replace(inputs[name], type=inputs[name].element) for name in self.by}
        for name, column, aggregation in self.made():
            if name in described:
                raise ConfigError(f"the output {name!r} is repeated; choose another name_sep")
            described[name] = _aggregated(column, inputs[column], aggregation)
        return described


def _aggregated(column: str, spec: Spec, aggregation: Aggregation) -> Spec:
    if aggregation in CALCULATED:
        numbers({column: spec})
        return Spec(pa.float64())
    if aggregation in COUNTED:
        return Spec(pa.int32(), dtype="int32")
    return replace(spec, type=pa.list_(spec.element) if aggregation == "list" else spec.element)
