"""LambdaOp: compute a column from an expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from recsys_cli.features import expression as expressions
from recsys_cli.features.ops.fields import ExpressionText
from recsys_cli.features.ops.op import Op, scalars
from recsys_cli.features.spec import Spec


class LambdaOp(Op):
    """Compute a column from an expression over columns of the interactions, such as `rating > 3`.

    Grammar: columns, numbers, texts, `+ - * /`, one comparison at a time, `and`, `or`, `not`, `a if condition else b`, and
    the functions below. A column whose name is no plain word is `column('my column')`. An expression is read, never run as
    Python.

    Numbers: whole numbers are calculated with as int64 (beyond it they are null), others as float64, whatever their type in
    the file. Truth values are 1 and 0; for `and`, `or`, `not` and `if` every number but 0 is true. A time or a date is the
    whole number of its seconds since 1970 in UTC, fractions of a second cut off. A text can only be compared with a text, by
    its UTF-8 bytes. Division is true division; by zero it gives inf, and 0 / 0 is null.

    Functions of numbers: `log(x)` is the natural logarithm, -inf of 0 and null below; `round(x)` goes to the nearest whole
    number, halves to the even one; `min(a, b)`, `max(a, b)`; `clip(x, low, high)` is min(max(x, low), high).
    Functions of time: `year(t)`, `month(t)` and `day(t)` from 1, `weekday(t)` from Monday 0, `hour(t)`, `minute(t)`, all in
    UTC, of a time, a date, or seconds since 1970; null outside the years 1 to 9999. The column of features.timestamp is a time
    where it holds texts, or numbers of ms, µs or ns.
    Functions of text: `length(text)` counts code points; `lower(text)` puts each code point by itself into lower case, by
    the simple mapping of Unicode: É becomes é, İ becomes i, and a Σ at the end of a word σ.
    Choosing: `if(condition, a, b)` gives a or b, which are both numbers or both texts; it is whole where both are.

    Nulls: NaN is null. A null operand or argument gives null, with these exceptions: the other side of `and` or `or`
    decides alone; `if` looks at its condition, where null gives null, and at the one that it chooses; `is_null(x)` is
    never null. A null result is 0 in an integer column and NaN in a float column.

    Nothing is fitted.
    Output: a column of `dtype`, under the name `output`; float to integer truncates toward zero, and a number that does
    not fit is null.
    """

    op: Literal["LambdaOp"] = "LambdaOp"
    expression: ExpressionText
    """The expression, as text; it is parsed to a small grammar, never run as Python."""
    output: str
    """Name of the new column; may be that of an input."""
    dtype: Literal["int8", "int16", "int32", "int64", "float32", "float64"] = "float32"
    """Type of the new column."""

    @property
    def title(self) -> str:
        """How a message names it."""
        return f"{self.name} {self.expression!r}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the expression names."""
        return tuple(sorted(expressions.columns(expressions.parse(self.expression))))

    @property
    def expressions(self) -> Mapping[str, str]:
        """The expression, by the column that it gives."""
        return {self.output: self.expression}

    @property
    def casts(self) -> Mapping[str, str]:
        """The expression, where its type is one of whole numbers."""
        return {} if self.dtype.startswith("float") else self.expressions

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Describe the computed column.

        Raises:
            ConfigError: The expression mixes texts and numbers, or gives a text; the message shows the part that does.
        """
        kinds = {name: expressions.kind_of_type(spec.type, name) for name, spec in scalars(inputs).items()}
        expressions.check(expressions.parse(self.expression), kinds)
        return {self.output: Spec(pa.type_for_alias(self.dtype), dtype=self.dtype)}
