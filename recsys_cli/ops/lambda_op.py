"""A column from an expression, and a filter by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import KEEP, ROW_NUMBER
from recsys_cli.features.spec import Spec
from recsys_cli.ops.expression import Expression, check, columns, kind_of_type, parse
from recsys_cli.ops.flow import Flow, Mask, OpContext, filter_rows
from recsys_cli.ops.op import Op, RowFilter, Tables, scalars
from recsys_cli.ops.values import Apply, Array, Columns, Types, Values, element, set_column
from recsys_cli.packages import np, pa, pl


def _readable(text: str) -> str:
    try:
        parse(text)
    except ConfigError as error:
        raise ValueError(error.message) from error
    return text


ExpressionText = Annotated[str, AfterValidator(_readable)]
"""Expression as text, parsed by a small grammar, never run as Python."""


class LambdaOp(Op):
    """Compute a column from an expression over columns of the interactions, such as `rating > 3`.

    Grammar: columns, numbers, text, `+ - * /`, single comparisons, `and`, `or`, `not`, `a if condition else b`, and the
    functions below. Write `column('my column')` for a name that is no identifier. An expression is parsed, never run as
    Python.

    Numbers: integers are int64 (null beyond it), others float64, independent of the type in the file. Booleans are 1 and
    0; for `and`, `or`, `not` and `if` every number except 0 is true. Times and dates are whole seconds since 1970 UTC,
    rounded down. Text compares only with text, by UTF-8 bytes. Division is true division; by zero it gives inf, and 0 / 0
    is null.

    Functions of numbers: `log(x)` is the natural logarithm, -inf for 0 and null below; `round(x)` rounds halves to even;
    `min(a, b)`, `max(a, b)`; `clip(x, low, high)` is min(max(x, low), high).
    Functions of time: `year(t)`, `month(t)` and `day(t)` from 1, `weekday(t)` with Monday 0, `hour(t)`, `minute(t)`. All are
    in UTC, for a time, a date or seconds since 1970; null outside the years 1 to 9999. The column of features.timestamp is a
    time if it holds text, or numbers in ms, µs or ns.
    Functions of text: `length(text)` counts code points; `lower(text)` lowers each code point by the simple mapping of
    Unicode: É becomes é, İ becomes i, a final Σ becomes σ.
    Conditionals: `if(condition, a, b)` with both numbers or both text; an integer if both are.

    Nulls: NaN is null. A null operand or argument gives null, with three exceptions. A decisive operand of `and` or `or`
    outweighs a null; `if` ignores nulls in the other branch; `is_null(x)` is never null. A null result is 0 in an integer
    column and NaN in a float column.
    Fitted: nothing.
    Output: a column `output` of type `dtype`; float to integer truncates toward zero, and a number out of range is null.
    """

    op: Literal["LambdaOp"] = "LambdaOp"
    expression: ExpressionText
    """Expression as text, parsed by a small grammar, never run as Python."""
    output: str
    """Name of the output; may be that of an input."""
    dtype: Literal["int8", "int16", "int32", "int64", "float32", "float64"] = "float32"
    """Type of the output."""

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"{self.name} {self.expression!r}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the expression."""
        return tuple(sorted(columns(self.tree)))

    @property
    def tree(self) -> Expression:
        """The syntax tree."""
        return parse(self.expression)

    @property
    def expressions(self) -> Mapping[str, str]:
        """The expression, by output."""
        return {self.output: self.expression}

    @property
    def casts(self) -> Mapping[str, str]:
        """The expression of an integer output, by output."""
        return {} if self.dtype.startswith("float") else self.expressions

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the spec of the output; a `ConfigError` for mixed text and numbers and for a text result."""
        check(self.tree, {name: kind_of_type(spec.type, name) for name, spec in scalars(inputs).items()})
        return {self.output: Spec(pa.type_for_alias(self.dtype), dtype=self.dtype)}

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Add the column.

        Raises:
            ConfigError: The expression mixes text and numbers.
        """
        from recsys_cli.ops.evaluate import numbers_of, operand_of  # loads numpy

        tree = self.tree
        kinds = {name: kind_of_type(types[name], name) for name in self.reads}
        check(tree, kinds)
        reads = {name: operand_of(element(types[name]), kind) for name, kind in kinds.items()}
        evaluate, finish = numbers_of(tree, kinds), _finish(self.dtype)
        types[self.output] = pa.type_for_alias(self.dtype)

        def apply(columns: Columns, rows: int) -> None:
            values, nulls = evaluate({name: read(columns[name]) for name, read in reads.items()})
            if len(values) != rows or len(nulls) != rows:  # literals have one entry
                values, nulls = np.broadcast_to(values, (rows,)), np.broadcast_to(nulls, (rows,))
            columns[self.output] = Values(finish(values, nulls))

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add the column."""
        from recsys_cli.ops.evaluate import polars_expression

        values = polars_expression(self.tree, frame)
        missing = float("nan") if self.dtype.startswith("float") else 0
        dtype = getattr(pl, self.dtype.replace("int", "Int").replace("float", "Float"))
        return frame.with_columns(values.cast(dtype, strict=False).fill_null(missing).alias(self.output))

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Add the column, with NaN for a null result."""
        rows = super().nvtabular(state, rows, folder)
        column = rows.column(self.output)
        return set_column(rows, self.output, column.fill_null(np.nan)) if self.dtype.startswith("float") else rows


def _finish(dtype: str) -> Callable[[Array, Array], Array]:
    """Return the cast to the output type: a null is NaN, or 0 as an integer, and so is a number out of range."""
    if dtype.startswith("float"):
        return lambda values, nulls: np.where(nulls, np.nan, values).astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max

    def whole(values: Array, nulls: Array) -> Array:
        if dtype != "int64":
            fits = (values > low - 1) & (values < high + 1) & ~nulls
        else:
            fits = ~nulls if values.dtype.kind == "i" else (values >= -(2.0**63)) & (values < 2.0**63) & ~nulls
        return np.where(fits, values, values.dtype.type(0)).astype(dtype)

    return whole


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

    @property
    def row_wise(self) -> bool:
        """True."""
        return True

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Keep the rows with a true expression."""
        return filter_rows(rows, partial(_keep, self.computing(KEEP)), context.keeps)


def _keep(op: LambdaOp, batch: pa.Table) -> Mask:
    frame = pl.LazyFrame(batch.select([ROW_NUMBER, *op.reads]))  # ROW_NUMBER, because an expression may read no column
    truth = op.polars({}, frame).select(KEEP).collect().to_series().to_numpy()
    return (truth != 0) & ~np.isnan(truth)
