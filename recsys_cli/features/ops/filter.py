"""Filter: keep the interactions for which an expression is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from recsys_cli.features.ops.fields import ExpressionText
from recsys_cli.features.ops.lambda_op import LambdaOp
from recsys_cli.features.ops.op import Op, Phase
from recsys_cli.features.spec import Spec


class Filter(Op):
    """Keep the interactions for which an expression is true, such as `rating >= 4` for a minimum rating.

    The expression is LambdaOp's, with the same grammar and meaning; a number is true unless it is 0. Where it is null
    (a null or NaN operand) the row is left out; to keep those too, say so in the expression.
    Rows are chosen before the split and before everything that is fitted; each row is looked at on its own, so an empty
    input stays empty. Nothing is fitted. No column changes; lists cannot be asked about, and come through as they are.
    """

    phase: ClassVar[Phase] = "rows"
    drops_only: ClassVar[bool] = True

    op: Literal["Filter"] = "Filter"
    expression: ExpressionText
    """What has to be true, as text; it is parsed to a small grammar, never run as Python."""

    @property
    def title(self) -> str:
        """How a message names it."""
        return f"{self.name} {self.expression!r}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the expression names."""
        return self.computing("").reads

    def computing(self, output: str) -> LambdaOp:
        """Return the op that computes the expression: a row is kept where that is neither 0 nor NaN."""
        return LambdaOp(expression=self.expression, output=output, dtype="float64")

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Check the expression.

        Raises:
            ConfigError: It mixes texts and numbers, or gives a text.
        """
        self.computing("").outputs(inputs)
        return {}
