"""LambdaOp on NVTabular: the syntax tree compiles to a function over frame columns and their null masks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, run, to_arrow, to_frame
from recsys_cli.etl.nvtabular_engine.plain import elements, plain, set_column
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.expression import (
    FIRST_SECOND,
    LAST_SECOND,
    Binary,
    Call,
    Expression,
    Kind,
    LiteralValue,
    Name,
    Unary,
    check,
    columns,
    kind_of_type,
    parse,
)
from recsys_cli.ops.expression import kind as kind_of

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_LARGEST = pa.scalar(2**63 - 1, pa.uint64())
_ROWS = "rows"
"""Input column of every workflow, because an expression may have no column."""


@dataclass(frozen=True)
class _Operand:
    """Values and null mask, (N,) each, or scalars for a literal.

    Attributes:
        values: int64, float64, bool or string; arbitrary under the mask.
    """

    kind: Kind
    values: Any
    nulls: Any

    @property
    def numbers(self) -> Any:
        """The values, with booleans as 1 and 0."""
        return self.values.astype("int64") if self.kind == "truth" else self.values

    @property
    def truths(self) -> Any:
        """The values as booleans: numbers except 0 are true."""
        return self.values if self.kind == "truth" else self.values != 0


def apply(op: LambdaOp, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - stateless, no files
    """Add the op's column, by a workflow of one LambdaOp."""
    expression = parse(op.expression)
    kinds = {name: kind_of_type(rows.schema.field(name).type, name) for name in sorted(columns(expression))}
    check(expression, kinds)
    values = _run(op, expression, rows, kinds) if rows.num_rows else pa.array([], op.dtype)
    return set_column(rows, op.output, values)


def _run(op: LambdaOp, expression: Expression, table: pa.Table, kinds: Mapping[str, Kind]) -> pa.Array:
    inputs: dict[str, pa.Array] = {_ROWS: pa.array(np.zeros(table.num_rows, dtype=np.int64))}
    positions = {name: str(position) for position, name in enumerate(kinds)}
    for name, position in positions.items():
        raw, _ = elements(table.column(name))
        prepared = plain(raw, name)
        # Division needs the sign of a zero; plain columns drop it.
        values = raw.fill_null(0.0) if pa.types.is_floating(raw.type) else _seconds(prepared.values, raw.type)
        nulls = np.zeros(table.num_rows, dtype=bool) if prepared.nulls is None else prepared.nulls
        if pa.types.is_uint64(values.type):
            fits = pc.less_equal(values, _LARGEST)
            nulls = nulls | ~fits.to_numpy(zero_copy_only=False)
            values = pc.if_else(fits, values, pa.scalar(0, pa.uint64()))
        inputs |= {f"value{position}": _wide(values, kinds[name]), f"null{position}": pa.array(nulls)}

    def function(rows: Any, frame: Any) -> Any:
        operands = {
            name: _Operand(kinds[name], frame[f"value{position}"], frame[f"null{position}"])
            for name, position in positions.items()
        }
        return _typed(_evaluate(expression, operands), op.dtype, rows)

    with quiet():
        library = nvtabular()
        needed = [name for name in inputs if name != _ROWS]
        graph = [_ROWS] >> library.ops.LambdaOp(function, dependency=needed or None, dtype=np.dtype(op.dtype))
    values = run(graph, inputs).column(_ROWS).combine_chunks()
    # pandas returns NaN as null.
    return values.fill_null(float("nan")) if op.dtype.startswith("float") else values


def _seconds(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert dates and times to whole seconds; other values stay."""
    if pa.types.is_date32(kind):
        return pc.multiply(values.cast(pa.int64()), _DAY)
    if not pa.types.is_temporal(kind):
        return values
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    return pa.array(values.to_numpy() // _PER_SECOND[unit])


def _wide(values: pa.Array, kind: Kind) -> pa.Array:
    if kind == "text":
        return values
    if kind == "truth":
        return values.cast(pa.bool_())
    return values.cast(pa.float64() if pa.types.is_floating(values.type) else pa.int64())


def _evaluate(expression: Expression, operands: Mapping[str, _Operand]) -> _Operand:
    match expression:
        case Name(name):
            return operands[name]
        case LiteralValue(value):
            return _Operand(kind_of(expression, {}), np.asarray(value)[()], np.False_)
        case Unary("-", operand):
            inner = _evaluate(operand, operands)
            return _Operand("number", -inner.numbers, inner.nulls)
        case Unary(_, operand):
            inner = _evaluate(operand, operands)
            return _Operand("truth", ~inner.truths, inner.nulls)
        case Binary("and" | "or" as symbol, left, right):
            return _logic(symbol, _evaluate(left, operands), _evaluate(right, operands))
        case Binary(symbol, left, right):
            return _calculate(symbol, _evaluate(left, operands), _evaluate(right, operands))
        case Call(function, arguments):
            return _FUNCTIONS[function](*(_evaluate(argument, operands) for argument in arguments))


def _logic(symbol: str, left: _Operand, right: _Operand) -> _Operand:
    """Combine booleans in three-valued logic (SQL)."""
    if symbol == "and":
        decided = (~left.nulls & ~left.truths) | (~right.nulls & ~right.truths)
        return _Operand("truth", ~decided & left.truths & right.truths, (left.nulls | right.nulls) & ~decided)
    decided = (~left.nulls & left.truths) | (~right.nulls & right.truths)
    return _Operand("truth", decided | left.truths | right.truths, (left.nulls | right.nulls) & ~decided)


def _calculate(symbol: str, left: _Operand, right: _Operand) -> _Operand:
    values = _OPERATORS[symbol](left.numbers, right.numbers)
    nulls = left.nulls | right.nulls
    if symbol not in "+-*/":
        # Comparing two literal strings gives a Python bool, without `astype` and with an integer `~`.
        return _Operand("truth", np.bool_(values) if isinstance(values, bool) else values, nulls)
    return _Operand("number", values, nulls | (values != values))  # noqa: PLR0124 - that is, NaN


def _either(condition: _Operand, then: _Operand, otherwise: _Operand) -> _Operand:
    kind: Kind = then.kind if then.kind == otherwise.kind else "number"
    one, other = (then.numbers, otherwise.numbers) if kind == "number" else (then.values, otherwise.values)
    decided = condition.truths
    nulls = condition.nulls | (decided & then.nulls) | (~decided & otherwise.nulls)
    return _Operand(kind, _chosen(decided, one, other), nulls)


def _greater(one: _Operand, other: _Operand) -> _Operand:
    values = _chosen(one.numbers >= other.numbers, one.numbers, other.numbers)
    return _Operand("number", values, one.nulls | other.nulls)


def _smaller(one: _Operand, other: _Operand) -> _Operand:
    values = _chosen(one.numbers <= other.numbers, one.numbers, other.numbers)
    return _Operand("number", values, one.nulls | other.nulls)


def _log(number: _Operand) -> _Operand:
    values = np.log(number.numbers.astype("float64"))
    return _Operand("number", values, number.nulls | (values != values))  # noqa: PLR0124 - that is, NaN


def _length(text: _Operand) -> _Operand:
    lengths = text.values.str.len().astype("int64") if _is_series(text.values) else np.int64(len(text.values))
    return _Operand("number", lengths, text.nulls)


def _lower(text: _Operand) -> _Operand:
    """Convert strings to lower case by Arrow, in both engines: case tables differ between libraries."""
    if not _is_series(text.values):
        return _Operand("text", np.str_(pc.utf8_lower(pa.scalar(str(text.values))).as_py()), text.nulls)
    texts = to_arrow(text.values.to_frame(_ROWS)).column(_ROWS).combine_chunks()
    lowered = to_frame({_ROWS: pc.utf8_lower(texts)})[_ROWS]
    lowered.index = text.values.index
    return _Operand("text", lowered, text.nulls)


def _part(of_time: Callable[[Any], Any]) -> Callable[[_Operand], _Operand]:
    def part(seconds: _Operand) -> _Operand:
        floored = np.floor(seconds.numbers.astype("float64"))
        valid = (floored >= FIRST_SECOND) & (floored <= LAST_SECOND)
        whole = _chosen(valid, floored, np.float64(0)).astype("int64")
        return _Operand("number", of_time(whole), seconds.nulls | ~valid)

    return part


def _date(seconds: Any) -> tuple[Any, Any, Any]:
    """Return year, month and day of seconds since 1970 as integers, because pandas timestamps end in 2262.

    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": years start in March, in eras of 400 years.
    """
    days = seconds // _DAY + 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    in_next = (month >= 10).astype("int64")
    return years + era * 400 + in_next, month + 3 - 12 * in_next, day


_FUNCTIONS: dict[str, Callable[..., _Operand]] = {
    "is_null": lambda operand: _Operand("truth", operand.nulls, np.False_),
    "if": _either,
    "log": _log,
    "round": lambda number: _Operand("number", number.numbers.round(), number.nulls),
    "min": _smaller,
    "max": _greater,
    "clip": lambda number, low, high: _smaller(_greater(number, low), high),
    "year": _part(lambda seconds: _date(seconds)[0]),
    "month": _part(lambda seconds: _date(seconds)[1]),
    "day": _part(lambda seconds: _date(seconds)[2]),
    "weekday": _part(lambda seconds: (seconds // _DAY + 3) % 7),  # the first day of 1970 was a Thursday
    "hour": _part(lambda seconds: seconds % _DAY // _HOUR),
    "minute": _part(lambda seconds: seconds % _HOUR // _MINUTE),
    "length": _length,
    "lower": _lower,
}


def _is_series(values: Any) -> bool:
    return hasattr(values, "to_frame")


def _chosen(condition: Any, one: Any, other: Any) -> Any:
    """Return one value or the other by row; each is a series or a scalar."""
    if "f" in {one.dtype.kind, other.dtype.kind}:
        one, other = one.astype("float64"), other.astype("float64")
    if not _is_series(condition):
        return one if condition else other
    if not _is_series(one):
        one = type(condition)(one, index=condition.index)
    return one.where(condition, other)


def _typed(result: _Operand, dtype: str, rows: Any) -> Any:
    """Return a series of the output type without nulls; integers out of range become 0."""
    # Rows are zeros. Adding them broadcasts a literal, but would turn -0.0 into 0.0 in a series.
    is_series = isinstance(result.values, type(rows))
    values = result.numbers if is_series else rows + result.numbers
    nulls = (rows != 0) | result.nulls
    if dtype.startswith("float"):
        return values.astype(dtype).where(~nulls, np.nan)
    limits = np.iinfo(dtype)
    fits = (values > limits.min - 1) & (values < limits.max + 1) if dtype != "int64" else _fits_int64(values)
    return values.where(fits & ~nulls, 0).astype(dtype)


def _fits_int64(values: Any) -> Any:
    if values.dtype.kind == "i":
        return values == values  # noqa: PLR0124 - all of them
    return (values >= -(2.0**63)) & (values < 2.0**63)
