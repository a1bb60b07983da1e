"""The smallest integer type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from recsys_cli.features.spec import Spec
from recsys_cli.ops.expression import Name, shown
from recsys_cli.ops.numeric import Columns
from recsys_cli.ops.op import NumericOp, numbers

TYPES = ("int8", "int16", "int32", "int64")
"""Integer types, smallest first."""


class ReduceDtypeSize(NumericOp):
    """Store integers in the smallest type for the range of train, other numbers as float32.

    Fitted: minimum and maximum of each integer column in train; of joined columns over the train interactions, of lists
    over all elements. Types: int8, int16, int32, int64; booleans and columns without values are int8. Numbers out of
    range, in other splits only, become the nearest limit.
    Nulls: null becomes 0 in integer types; in float32 null and NaN stay null, inf stays inf, and overflow becomes inf.
    Lists: element by element; a null list becomes an empty one.
    Output: the fitted type, named as the input; later ops calculate with this type.
    """

    fitted: ClassVar[bool] = True

    op: Literal["ReduceDtypeSize"] = "ReduceDtypeSize"
    columns: Columns
    """Numeric columns, each with its own type."""

    @property
    def casts(self) -> Mapping[str, str]:
        """Expressions for the input columns."""
        return {name: shown(Name(name)) for name in self.columns}

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns with the widest types."""
        described: dict[str, Spec | None] = {}
        for name, spec in numbers(inputs).items():
            dtype = "int64" if is_whole(spec.element) else "float32"
            described[name] = spec.computed(pa.type_for_alias(dtype), dtype=dtype)
        return described

    def fitted_output(self, name: str, spec: Spec, state: Mapping[str, pa.Table]) -> Spec:
        """Add the fitted type."""
        dtype = spec.dtype if spec.dtype == "float32" else reduced(state[name])
        return replace(spec, type=spec.holding(pa.type_for_alias(dtype)), dtype=dtype)


def is_whole(kind: pa.DataType) -> bool:
    """Whether a type is integer or boolean."""
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def reduced(state: pa.Table) -> str:
    """Return the smallest type for the range `low` to `high`, null without values."""
    low, high = (state.column(name)[0].as_py() or 0 for name in ("low", "high"))
    return next(name for name in TYPES if np.iinfo(name).min <= low and high <= np.iinfo(name).max)
