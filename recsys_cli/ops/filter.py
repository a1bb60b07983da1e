"""Interactions by a condition."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from recsys_cli.features.columns import KEEP, ROW_NUMBER
from recsys_cli.features.spec import Spec
from recsys_cli.ops.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.ops.lambda_op import ExpressionText, LambdaOp
from recsys_cli.ops.op import RowFilter
from recsys_cli.packages import pl


class Filter(RowFilter):
    """Keep the interactions that satisfy an expression, such as `rating >= 4`.

    The expression has the grammar and semantics of LambdaOp; every number except 0 is true. Rows are dropped before the
    split.
    Nulls: rows with a null result are dropped; keep them with `is_null`.
    Lists: not allowed in the expression; unchanged otherwise.
    Fitted: nothing.
    Output: fewer rows; no column changes.
    """

    op: Literal["Filter"] = "Filter"
    expression: ExpressionText
    """Condition as text, parsed by a small grammar, never run as Python."""

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"{self.name} {self.expression!r}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the expression."""
        return self.computing("").reads

    def computing(self, output: str) -> LambdaOp:
        """Return the op that computes the condition; rows with 0 or NaN are dropped."""
        return LambdaOp(expression=self.expression, output=output, dtype="float64")

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Check the expression."""
        self.computing("").outputs(inputs)
        return {}

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Keep the rows with a true expression."""
        return filter_rows(rows, partial(_keep, self.computing(KEEP)), context.keeps)


def _keep(op: LambdaOp, batch: pa.Table) -> Mask:
    frame = pl.LazyFrame(batch.select([ROW_NUMBER, *op.reads]))  # ROW_NUMBER, because an expression may read no column
    truth = op.polars({}, frame).select(KEEP).collect().to_series().to_numpy()
    return (truth != 0) & ~np.isnan(truth)
