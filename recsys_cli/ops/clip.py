"""Numbers within bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from recsys_cli.features.spec import Spec
from recsys_cli.ops.numeric import DistinctNames, Number, NumericOp, calculated_type
from recsys_cli.ops.op import Tables, numbers
from recsys_cli.ops.values import Array, numpy_type
from recsys_cli.packages import np, pa, pl


class Clip(NumericOp):
    """Limit numbers to a lower bound, an upper bound or both.

    Nulls: null and NaN stay null; inf and -inf become the bound.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: named as the input; int64 for integers with integer bounds, else float64. Written as float32.
    """

    op: Literal["Clip"] = "Clip"
    columns: DistinctNames
    """Numeric columns."""
    min_value: Number | None = None
    """Lower bound; null for none."""
    max_value: Number | None = None
    """Upper bound; null for none."""

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.min_value is None and self.max_value is None:
            raise ValueError("Clip needs min_value, max_value or both")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value} is above max_value {self.max_value}")
        return self

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the clipped columns."""
        return {name: spec.computed(self.calculation(spec.element)) for name, spec in numbers(inputs).items()}

    def calculation(self, kind: pa.DataType) -> pa.DataType:
        """Return an integer type for integers and integer bounds."""
        return calculated_type(kind, self.min_value, self.max_value)

    def on_numpy(self, name: str, kind: pa.DataType, state: Tables) -> Callable[[Array], Array]:
        """Clip values; NaN passes through."""
        dtype = numpy_type(kind).type
        low, high = (None if bound is None else dtype(bound) for bound in (self.min_value, self.max_value))

        def clipped(data: Array) -> Array:
            data = data if low is None else np.maximum(data, low)
            return data if high is None else np.minimum(data, high)

        return clipped

    def on_polars(self, values: pl.Expr, name: str, kind: pa.DataType, state: Tables) -> pl.Expr:
        """Clip values; NaN passes through."""
        number = float if pa.types.is_floating(kind) else int
        low, high = (None if bound is None else number(bound) for bound in (self.min_value, self.max_value))
        return values.clip(low, high)

    def on_nvtabular(self, library: Any, columns: Mapping[str, str], state: Tables) -> Any:
        """Return a Clip, with integer bounds as integers."""
        low, high = (
            None if value is None else int(value) if float(value).is_integer() else value
            for value in (self.min_value, self.max_value)
        )
        return library.ops.Clip(min_value=low, max_value=high)
