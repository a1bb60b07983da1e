"""LambdaOp as ONNX nodes: numbers with their null masks, as `ops.expression.evaluate` calculates them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from recsys_cli.ops import LambdaOp
from recsys_cli.ops.expression import (
    FIRST_SECOND,
    LAST_SECOND,
    Binary,
    Call,
    Expression,
    LiteralValue,
    Name,
    Unary,
    columns,
    parse,
)
from recsys_cli.serving.export.graph import Columns, Graph, Outside, State

_NODES = {
    "+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "and": "And", "or": "Or",
    "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual", "==": "Equal", "!=": "Equal",
}  # fmt: skip


_Number = Literal["int64", "float64"]
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60


class _Operand(NamedTuple):
    """Values, and the name of their null mask; None without nulls. Booleans are truths, arbitrary under the mask."""

    data: str
    kind: Literal["int64", "float64", "bool"]
    nulls: str | None = None


def calculate(graph: Graph, op: LambdaOp, state: State, row: Columns, wanted: frozenset[str]) -> None:
    """Add the column of an expression over numbers.

    Raises:
        Outside: The expression has text, a function without an ONNX form, or no column.
    """
    del state, wanted
    expression = parse(op.expression)
    if not columns(expression):
        raise Outside("an expression without a column has no ONNX form")
    result = _Calculation(graph, row).number(expression)
    one = row[min(columns(expression))]
    if op.dtype.startswith("float"):
        data = graph.cast(result.data, "float64") if result.kind == "int64" else result.data
        data = graph.where(result.nulls, np.nan, data, "float64")
        data = data if op.dtype == "float64" else graph.cast(graph.cast(data, "float32"), "float64")
        row[op.output] = one.with_data(data, "float64")
    else:
        row[op.output] = one.with_data(_whole(graph, result, op.dtype), "int64")


def _whole(graph: Graph, result: _Operand, dtype: str) -> str:
    """Return integers, truncated toward zero; null and numbers out of range are 0."""
    data, (low, high) = result.data, (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    lost = result.nulls
    if result.kind == "float64" or dtype != "int64":
        ends = (float(low), float(high)) if dtype == "int64" else (low - 1, high + 1)
        above = "GreaterOrEqual" if dtype == "int64" else "Greater"
        bounds = [graph.constant(end, result.kind) for end in ends]
        fits = graph.add("And", graph.add(above, data, bounds[0]), graph.add("Less", data, bounds[1]))
        outside = graph.add("Not", fits)
        lost = outside if lost is None else graph.add("Or", lost, outside)
    return graph.cast(graph.where(lost, 0, data, result.kind), "int64")


class _Calculation:
    """Nodes of one expression."""

    def __init__(self, graph: Graph, row: Columns) -> None:
        self._graph, self._row = graph, row

    def number(self, expression: Expression) -> _Operand:
        """Return int64 or float64; booleans are 1 and 0."""
        found = self._any(expression)
        return found if found.kind != "bool" else _Operand(self._graph.cast(found.data, "int64"), "int64", found.nulls)

    def _truth(self, expression: Expression) -> _Operand:
        found = self._any(expression)
        if found.kind == "bool":
            return found
        is_zero = self._graph.add("Equal", found.data, self._graph.constant(0, found.kind))
        return _Operand(self._not(is_zero), "bool", found.nulls)

    def _any(self, expression: Expression) -> _Operand:
        match expression:
            case Name(name):
                value = self._row[name]
                if value.kind == "string" or value.mask is not None:
                    raise Outside("an expression over text or lists has no ONNX form")
                return _Operand(value.data, value.kind, self._graph.null_mask(value))
            case LiteralValue(int() | float() as value):
                kind: _Number = "float64" if isinstance(value, float) else "int64"
                return _Operand(self._graph.constant(value, kind), kind)
            case Unary("-", operand):
                found = self.number(operand)
                return found._replace(data=self._graph.add("Neg", found.data))
            case Unary("not", operand):
                found = self._truth(operand)
                return found._replace(data=self._not(found.data))
            case Binary("and" | "or" as symbol, left, right):
                return self._logic(symbol, self._truth(left), self._truth(right))
            case Binary(symbol, left, right):
                return self._binary(symbol, self.number(left), self.number(right))
            case Call():
                return self._called(expression)
        raise Outside("text in an expression has no ONNX form")

    def _called(self, call: Call) -> _Operand:
        match call:
            case Call("is_null", (operand,)):
                found = self._any(operand)
                return _Operand(found.nulls or self._not(self._graph.add("Equal", found.data, found.data)), "bool")
            case Call("if", (condition, then, otherwise)):
                return self._either(self._truth(condition), self.number(then), self.number(otherwise))
            case Call("hour" | "minute" | "weekday" as part, (time,)):
                return self._part_of_time(part, self.number(time))
        raise Outside(f"{call.function}() in an expression has no ONNX form")

    def _binary(self, symbol: str, left: _Operand, right: _Operand) -> _Operand:
        """Return a calculated number, or a comparison."""
        graph = self._graph
        one, other, kind = self._alike(left, right, as_floats=symbol == "/")
        data, nulls = graph.add(_NODES[symbol], one, other), self._or(left.nulls, right.nulls)
        if symbol not in "+-*/":
            return _Operand(self._not(data) if symbol == "!=" else data, "bool", nulls)
        return _Operand(data, kind, self._or(nulls, graph.add("IsNaN", data)) if kind == "float64" else nulls)

    def _logic(self, symbol: str, left: _Operand, right: _Operand) -> _Operand:
        """Return `and` or `or`: a decisive operand outweighs a null."""
        data, nulls = self._graph.add(_NODES[symbol], left.data, right.data), self._or(left.nulls, right.nulls)
        if nulls is None:
            return _Operand(data, "bool")
        for one in (left, right):
            open_ = one.data if symbol == "and" else self._not(one.data)
            nulls = self._graph.add(
                "And", nulls, open_ if one.nulls is None else self._graph.add("Or", one.nulls, open_)
            )
        return _Operand(data, "bool", nulls)

    def _either(self, condition: _Operand, then: _Operand, otherwise: _Operand) -> _Operand:
        """Return one of two numbers; nulls of the other one are ignored."""
        one, other, kind = self._alike(then, otherwise)
        nulls = condition.nulls
        for side, chosen in ((then, condition.data), (otherwise, self._not(condition.data))):
            if side.nulls is not None:
                nulls = self._or(nulls, self._graph.add("And", chosen, side.nulls))
        return _Operand(self._graph.add("Where", condition.data, one, other), kind, nulls)

    def _part_of_time(self, part: str, time: _Operand) -> _Operand:
        """Return the hour, minute or weekday of seconds since 1970 in UTC; null outside the years 1 to 9999."""
        graph = self._graph

        def whole(op: str, data: str, number: int) -> str:
            return graph.add(op, data, graph.constant(number, "int64"))

        floored = graph.add("Floor", graph.cast(time.data, "float64"))
        ends = [graph.constant(end, "float64") for end in (FIRST_SECOND, LAST_SECOND)]
        valid = graph.add(
            "And", graph.add("GreaterOrEqual", floored, ends[0]), graph.add("LessOrEqual", floored, ends[1])
        )
        outside = self._not(valid)
        seconds = graph.cast(graph.where(outside, 0, floored, "float64"), "int64")
        of_day = whole("Mod", seconds, _DAY)
        if part == "weekday":  # the first day of 1970 was a Thursday
            data = whole("Mod", whole("Add", whole("Div", graph.add("Sub", seconds, of_day), _DAY), 3), 7)
        else:
            data = whole("Div", of_day, _HOUR) if part == "hour" else whole("Div", whole("Mod", of_day, _HOUR), _MINUTE)
        return _Operand(data, "int64", self._or(time.nulls, outside))

    def _alike(self, one: _Operand, other: _Operand, *, as_floats: bool = False) -> tuple[str, str, _Number]:
        """Return two numbers in one type."""
        if one.kind == other.kind == "int64" and not as_floats:
            return one.data, other.data, "int64"
        first, second = (
            each.data if each.kind == "float64" else self._graph.cast(each.data, "float64") for each in (one, other)
        )
        return first, second, "float64"

    def _not(self, truth: str) -> str:
        return self._graph.add("Not", truth)

    def _or(self, *masks: str | None) -> str | None:
        """Return the union of null masks; None without nulls."""
        union: str | None = None
        for mask in masks:
            if mask is not None:
                union = mask if union is None else self._graph.add("Or", union, mask)
        return union
