"""Bucketize: numbers to the number of the interval that they fall in."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar, Literal, Self

import pyarrow as pa
from pydantic import FiniteFloat, field_validator, model_validator

from recsys_cli.features.ops.fields import FrozenDict
from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, numbers
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec

Boundaries = tuple[FiniteFloat, ...]


class Bucketize(Op):
    """Replace numbers by ids of the intervals between boundaries: n boundaries make n + 1 intervals.

    A number that is at least k of the boundaries gets the id 3 + k: below the first 3, from the first (itself included)
    to the second 4, and so on; -inf falls in the first interval and inf in the last. Numbers are compared as float64.
    A null is 1 (NaN is null), as everywhere; 0 and 2 do not occur. Lists are computed element by element; a null list
    becomes an empty one. Nothing is fitted.
    Output: int32 ids without a vocabulary, named as the input; the embedding table has n + 4 rows.
    """

    columnwise: ClassVar[bool] = True

    op: Literal["Bucketize"] = "Bucketize"
    columns: Columns
    """Columns of numbers to put in intervals."""
    boundaries: Boundaries | dict[str, Boundaries]
    """Where intervals begin, in ascending order: for all columns, or a list for each, such as `{age: [18, 30]}`."""

    @field_validator("boundaries")
    @classmethod
    def _frozen(cls, boundaries: Boundaries | dict[str, Boundaries]) -> Boundaries | dict[str, Boundaries]:
        return FrozenDict(boundaries) if isinstance(boundaries, dict) else boundaries

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if isinstance(self.boundaries, dict) and set(self.boundaries) != set(self.columns):
            raise ValueError(
                f"boundaries are given for {sorted(self.boundaries)}, and columns are {sorted(self.columns)}"
            )
        for name in self.columns:
            given = self.of(name)
            if not given:
                raise ValueError(f"{name} has no boundary; at least one is needed")
            if any(low >= high for low, high in pairwise(given)):
                raise ValueError(f"the boundaries of {name} have to ascend: {', '.join(map(str, given))}")
        return self

    def of(self, column: str) -> Boundaries:
        """Return the boundaries of a column."""
        return self.boundaries[column] if isinstance(self.boundaries, dict) else self.boundaries

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the ids, with the rows of their embedding tables."""
        return {
            name: Spec(
                spec.holding(pa.int32()), categorical=True, cardinality=FIRST + len(self.of(name)) + 1, dtype="int32",
                tags=spec.tags,
                lengths=spec.lengths,
            )
            for name, spec in numbers(inputs).items()
        }  # fmt: skip
