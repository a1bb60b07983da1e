"""LambdaOp on Polars: the expression's tree becomes a Polars expression."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pyarrow as pa

from recsys_cli.features.expression import (
    Binary,
    Expression,
    Kind,
    Literally,
    Name,
    Unary,
    check,
    columns,
    kind,
    kind_of_type,
    parse,
)
from recsys_cli.features.ops import LambdaOp

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "and": operator.and_, "or": operator.or_,
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "int8": pl.Int8, "int16": pl.Int16, "int32": pl.Int32, "int64": pl.Int64, "float32": pl.Float32, "float64": pl.Float64,
}  # fmt: skip


def apply(op: LambdaOp, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:  # noqa: ARG001 - it learns nothing
    """Add the op's column.

    Raises:
        ConfigError: The expression mixes text and numbers.
    """
    expression = parse(op.expression)
    read = frame.select(sorted(columns(expression))).collect_schema()
    raw = pl.DataFrame(schema=read).to_arrow().schema
    compiler = _Compiler(read, {field.name: kind_of_type(field.type, field.name) for field in raw})
    check(expression, compiler.kinds)
    missing = float("nan") if op.dtype.startswith("float") else 0
    values = compiler.number(expression).cast(_TYPES[op.dtype], strict=False).fill_null(missing)
    return frame.with_columns(values.alias(op.output))


class _Compiler:
    """Turns a tree into an expression over int64, float64, truth values and text, in which NaN is null."""

    def __init__(self, types: Mapping[str, pl.DataType], kinds: Mapping[str, Kind]) -> None:
        self.types = types
        self.kinds = kinds

    def number(self, expression: Expression) -> pl.Expr:
        """Compile to numbers; truth values become 1 and 0."""
        compiled = self._any(expression)
        return compiled.cast(pl.Int64) if kind(expression, self.kinds) == "truth" else compiled

    def _truth(self, expression: Expression) -> pl.Expr:
        compiled = self._any(expression)
        return compiled if kind(expression, self.kinds) == "truth" else compiled != 0

    def _any(self, expression: Expression) -> pl.Expr:
        match expression:
            case Name(name):
                return self._column(name)
            case Literally(value):
                return pl.lit(value, dtype=pl.Int64 if type(value) is int else None)
            case Unary("-", operand):
                return -self.number(operand)
            case Unary(_, operand):
                return ~self._truth(operand)
            case Binary("and" | "or" as symbol, left, right):
                both: pl.Expr = _OPERATORS[symbol](self._truth(left), self._truth(right))
                return both
            case Binary(symbol, left, right):
                return self._calculated(symbol, left, right)

    def _calculated(self, symbol: str, left: Expression, right: Expression) -> pl.Expr:
        if kind(left, self.kinds) == "text":
            compared: pl.Expr = _OPERATORS[symbol](self._any(left), self._any(right))
            return compared
        values: pl.Expr = _OPERATORS[symbol](self.number(left), self.number(right))
        return values.fill_nan(None) if symbol in "+-*/" else values

    def _column(self, name: str) -> pl.Expr:
        if self.kinds[name] == "text":
            return pl.col(name).cast(pl.String)
        if self.kinds[name] == "truth":
            return pl.col(name)
        is_float = self.types[name].is_float()
        return pl.col(name).cast(pl.Float64).fill_nan(None) if is_float else pl.col(name).cast(pl.Int64)
