"""ReduceDtypeSize: the smallest type that holds the numbers of train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from recsys_cli.features.expression import Name, shown
from recsys_cli.features.ops.numeric import Columns
from recsys_cli.features.ops.op import Op, numbers
from recsys_cli.features.spec import Spec

TYPES = ("int8", "int16", "int32", "int64")
"""Types of whole numbers, the smallest first."""


class ReduceDtypeSize(Op):
    """Write whole numbers in the smallest type that holds the range that train has, others as float32.

    Fitted: smallest and largest whole number of each column in the train split, of a joined column among those that a
    train interaction has, of lists among all their elements. Types: int8, int16, int32, int64; truth values, and a column
    without any value in train, are int8. Numbers outside that type, which train cannot have, become the nearest that it has.
    A null is 0 in a type of whole numbers; in float32 it stays null (NaN is null), inf stays inf, and what is too large
    becomes inf. A null list becomes an empty one.
    Output: named as the input, of the type found, which is also what later ops calculate with.
    """

    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True

    op: Literal["ReduceDtypeSize"] = "ReduceDtypeSize"
    columns: Columns
    """Columns of numbers, each with its own type."""

    @property
    def casts(self) -> Mapping[str, str]:
        """The columns as they are before it."""
        return {name: shown(Name(name)) for name in self.columns}

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the columns; types of whole numbers are as wide as may be until train is known."""
        found: dict[str, Spec | None] = {}
        for name, spec in numbers(inputs).items():
            dtype = "int64" if is_whole(spec.element) else "float32"
            found[name] = Spec(
                spec.holding(pa.type_for_alias(dtype)), dtype=dtype, tags=spec.tags, lengths=spec.lengths
            )
        return found

    def learnt(self, outputs: dict[str, Spec | None], state: Mapping[str, pa.Table]) -> dict[str, Spec | None]:
        """Describe the columns with the types that hold train."""
        found: dict[str, Spec | None] = {}
        for name, spec in outputs.items():
            assert spec is not None
            dtype = spec.dtype if spec.dtype == "float32" else reduced(state[name])
            found[name] = replace(spec, type=spec.holding(pa.type_for_alias(dtype)), dtype=dtype)
        return found


def is_whole(kind: pa.DataType) -> bool:
    """Whether values of a type are whole numbers or truth values."""
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def reduced(state: pa.Table) -> str:
    """Return the smallest type that holds the range `low` to `high` of a column, null where there is none."""
    low, high = (state.column(name)[0].as_py() or 0 for name in ("low", "high"))
    return next(name for name in TYPES if np.iinfo(name).min <= low and high <= np.iinfo(name).max)
