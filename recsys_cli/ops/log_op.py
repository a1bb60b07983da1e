"""Natural logarithm of 1 + x."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from recsys_cli.ops.numeric import DistinctNames, NumericOp
from recsys_cli.ops.op import Tables
from recsys_cli.ops.values import Array
from recsys_cli.packages import np, pa, pl


class LogOp(NumericOp):
    """Replace x by log(1 + x), the natural logarithm, so that 0 stays 0.

    1 + x is rounded to float64 first. -1 becomes -inf; smaller numbers become null: put a Clip with `min_value: 0` before.
    Nulls: null and NaN stay null; inf stays inf.
    Lists: element by element; a null list becomes an empty one.
    Fitted: nothing.
    Output: float64 (written as float32), named as the input.
    """

    op: Literal["LogOp"] = "LogOp"
    columns: DistinctNames
    """Numeric columns."""

    def on_numpy(self, name: str, kind: pa.DataType, state: Tables) -> Callable[[Array], Array]:
        """Return log(1 + x)."""
        return lambda data: np.log(data + 1.0)

    def on_polars(self, values: pl.Expr, name: str, kind: pa.DataType, state: Tables) -> pl.Expr:
        """Return log(1 + x)."""
        return (values + 1.0).log()

    def on_nvtabular(self, library: Any, columns: Mapping[str, str], state: Tables) -> Any:
        """Return a LogOp in float64: in its default float32, 1 + x loses a small x."""

        class DoubleLogOp(library.ops.LogOp):
            output_dtype = np.float64

        return DoubleLogOp()
