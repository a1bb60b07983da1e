"""LambdaOp on Polars: the expression's tree becomes a Polars expression."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import polars as pl

from recsys_cli.features.expression import Binary, Expression, Literally, Name, Unary, parse
from recsys_cli.features.ops import LambdaOp

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "and": operator.and_, "or": operator.or_,
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "int8": pl.Int8, "int16": pl.Int16, "int32": pl.Int32, "int64": pl.Int64, "float32": pl.Float32, "float64": pl.Float64,
}  # fmt: skip


def compute(op: LambdaOp, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the op's column."""
    missing = float("nan") if op.dtype.startswith("float") else 0
    values = _compile(parse(op.expression)).cast(_TYPES[op.dtype], strict=False).fill_null(missing)
    return frame.with_columns(values.alias(op.output))


def _compile(expression: Expression) -> pl.Expr:
    match expression:
        case Name(name):
            return pl.col(name)
        case Literally(value):
            return pl.lit(value)
        case Unary("-", operand):
            return -_compile(operand)
        case Unary(_, operand):
            return ~_compile(operand)
        case Binary(symbol, left, right):
            compiled: pl.Expr = _OPERATORS[symbol](_compile(left), _compile(right))
            return compiled
