"""Numbers to interval ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal, Self

from pydantic import FiniteFloat, field_validator, model_validator

from recsys_cli.features.schema import FIRST, NULL
from recsys_cli.features.spec import Spec
from recsys_cli.ops.numeric import DistinctNames, NumericOp
from recsys_cli.ops.op import FrozenDict, Tables, numbers
from recsys_cli.ops.values import Array
from recsys_cli.packages import np, pa

Boundaries = tuple[FiniteFloat, ...]


class Bucketize(NumericOp):
    """Replace numbers by interval ids: n boundaries make n + 1 intervals.

    The id is 3 + the number of boundaries at or below the value: 3 below the first, 4 from the first (included) to the
    second, and so on; -inf has the first interval, inf the last. Values are compared as float64.
    Nulls: null and NaN become 1; ids 0 and 2 are unused.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: int32 ids without a vocabulary, named as the input; the embedding table has n + 4 rows.
    """

    op: Literal["Bucketize"] = "Bucketize"
    columns: DistinctNames
    """Numeric columns."""
    boundaries: Boundaries | dict[str, Boundaries]
    """Lower bounds of the intervals, ascending; one list, or one per column such as `{age: [18, 30]}`."""

    @field_validator("boundaries")
    @classmethod
    def _frozen(cls, boundaries: Boundaries | dict[str, Boundaries]) -> Boundaries | dict[str, Boundaries]:
        return FrozenDict(boundaries) if isinstance(boundaries, dict) else boundaries

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if isinstance(self.boundaries, dict) and set(self.boundaries) != set(self.columns):
            raise ValueError(f"boundaries names {sorted(self.boundaries)}, but the columns are {sorted(self.columns)}")
        for name in self.columns:
            boundaries = self.of(name)
            if not boundaries:
                raise ValueError(f"{name} has no boundary; at least one is needed")
            if any(low >= high for low, high in pairwise(boundaries)):
                raise ValueError(f"the boundaries of {name} have to ascend: {', '.join(map(str, boundaries))}")
        return self

    def of(self, column: str) -> Boundaries:
        """Return the boundaries of a column."""
        return self.boundaries[column] if isinstance(self.boundaries, dict) else self.boundaries

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the ids."""
        return {
            name: spec.computed(pa.int32(), categorical=True, cardinality=FIRST + len(self.of(name)) + 1, dtype="int32")
            for name, spec in numbers(inputs).items()
        }

    def result(self, calculation: pa.DataType) -> pa.DataType:
        """Return the type of ids."""
        return pa.int32()

    def on_numpy(self, name: str, kind: pa.DataType, state: Tables) -> Callable[[Array], Array]:
        """Search the boundaries."""
        boundaries = np.array(self.of(name), dtype=np.float64)

        def ids(data: Array) -> Array:
            intervals = boundaries.searchsorted(data, side="right").astype(np.int32) + np.int32(FIRST)
            return np.where(np.isnan(data), np.int32(NULL), intervals)

        return ids
