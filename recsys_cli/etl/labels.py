"""Labels that would become another number without a word: values that their type does not hold, and nulls of whole numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import EXACT
from recsys_cli.features.expression import columns, kind, kind_of_type, parse
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.ops import LambdaOp
from recsys_cli.features.schema import Role, Schema
from recsys_cli.features.steps import PlanStep


def with_exact_labels(steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> list[PlanStep]:
    """Return steps that keep each label beside itself as float64, where bringing it to whole numbers could change it.

    Args:
        steps: What rows go through.
        fitted: The plan, with its labels.
        rows: The rows: a comparison of columns without nulls always fits.
    """
    labels = fitted.plan.labels
    found: list[PlanStep] = []
    for step in steps:
        for label in labels:
            expression = _exact(step, label, rows)
            if expression is not None:
                name = EXACT + label
                op = LambdaOp(expression=expression, output=name, dtype="float64")
                found.append(replace(step, op=op, writes=(name,)))
        found.append(step)
    return found


def _exact(step: PlanStep, label: str, rows: pa.Table) -> str | None:
    """Return an expression for a label as a step finds it, if the step may change it."""
    expression = step.op.casts.get(label)
    return None if expression is None or _always_fits(expression, rows) else expression


def _always_fits(expression: str, rows: pa.Table) -> bool:
    """Whether an expression is true or false in all rows."""
    parsed = parse(expression)
    reads = columns(parsed)
    if not all(name in rows.column_names and _all_there(rows.column(name)) for name in reads):
        return False
    try:
        kinds = {name: kind_of_type(rows.schema.field(name).type, name) for name in reads}
        return kind(parsed, kinds) == "truth"
    except ConfigError:  # the column is changed before, to one that can be read
        return False


def _all_there(values: pa.ChunkedArray) -> bool:
    if values.null_count:
        return False
    return not (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def count_lost(table: pa.Table, schema: Schema) -> dict[str, Counter[str]]:
    """Count the labels of prepared rows that are null, and those that their type does not hold; drawn rows may have none.

    Args:
        table: Rows that went through `with_exact_labels`.
        schema: The columns, with the types that are written.
    """
    drawn = next((column.name for column in schema.in_table(None) if column.role is Role.SAMPLED), None)
    lost = {}
    for label in schema.labels:
        if EXACT + label.name not in table.column_names:
            continue
        exact = table.column(EXACT + label.name).to_numpy()
        null = np.isnan(exact)
        if drawn is not None:
            null &= table.column(drawn).to_numpy() == 0
        wrong = int(_unfit(exact, label.dtype).sum())
        lost[label.name] = Counter({"null": int(null.sum()), "unfit": wrong, "rows": len(exact)})
    return lost


def refuse_lost(lost: Mapping[str, Mapping[str, int]], where: str, schema: Schema) -> None:
    """Stop where labels do not fit their type.

    Raises:
        DataError: Some do not; the message says how many.
    """
    for name, counts in lost.items():
        if counts.get("unfit"):
            raise unfit(name, counts["unfit"], f"of {counts['rows']:,} rows of {where}", schema[name].dtype)


def unfit(label: str, count: int, where: str, dtype: str) -> DataError:
    """Return the error for labels that do not fit their type."""
    return DataError(
        f"the label {label}: {count:,} {where} have a number that {dtype} does not hold",
        hint="give the op that makes it a wider type in features.ops, such as dtype: float32",
    )


def check_fits(label: str, exact: pa.ChunkedArray, dtype: str) -> None:
    """Check that the values of a label fit its type.

    Args:
        label: The column.
        exact: Its values as float64; NaN where one is null.
        dtype: The type.

    Raises:
        DataError: A number does not.
    """
    wrong = int(_unfit(exact.to_numpy(), dtype).sum())
    if wrong:
        raise unfit(label, wrong, "rows near there", dtype)


def _unfit(exact: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.bool_]:
    """Return which numbers a type of whole numbers does not hold once fractions are cut off; NaN is none."""
    ends = np.iinfo(dtype)
    low, high = float(ends.min), float(ends.max)  # of int64 a power of two, from which nothing below 1,024 can be told
    return (exact < low) & (exact <= low - 1) | (exact > high) & (exact >= high + 1)
