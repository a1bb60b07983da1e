"""LambdaOp: compute a column from an expression."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from recsys_cli.errors import ConfigError
from recsys_cli.features import expression as expressions
from recsys_cli.features.ops.op import Op


class LambdaOp(Op):
    """Compute a column from an expression over columns of the interactions, such as `rating > 3`.

    Grammar: columns, numbers, texts, `+ - * /`, one comparison at a time, `and`, `or`, `not`. Truth values are 1 and 0.
    A null operand gives null; a null result is 0 in an integer column and NaN in a float column. Division is true
    division; by zero it gives inf or NaN. Nothing is fitted.
    Output: a column of `dtype`, under the name `output`; float to integer truncates toward zero.
    """

    op: Literal["LambdaOp"] = "LambdaOp"
    expression: str
    """The expression, as text; it is parsed to a small grammar, never run as Python."""
    output: str
    """Name of the new column; may be that of an input."""
    dtype: Literal["int8", "int16", "int32", "int64", "float32", "float64"] = "float32"
    """Type of the new column."""

    @field_validator("expression")
    @classmethod
    def _parses(cls, text: str) -> str:
        try:
            expressions.parse(text)
        except ConfigError as error:
            raise ValueError(error.message) from error
        return text
