"""Checks for labels changed by a cast to an integer type: overflows, and nulls."""

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
from recsys_cli.features.schema import Role, Schema
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.expression import columns, kind, kind_of_type, parse
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.steps import PlanStep


def with_exact_labels(steps: Sequence[PlanStep], fitted: FittedPlan, rows: pa.Table) -> list[PlanStep]:
    """Add steps that keep a float64 copy of each label before a cast to integers with an effect."""
    labels = fitted.plan.labels
    extended: list[PlanStep] = []
    for step in steps:
        for label in labels:
            expression = step.op.casts.get(label)
            if expression is not None and not _always_fits(expression, rows):
                name = EXACT + label
                op = LambdaOp(expression=expression, output=name, dtype="float64")
                extended.append(replace(step, op=op, writes=(name,)))
        extended.append(step)
    return extended


def _always_fits(expression: str, rows: pa.Table) -> bool:
    """Whether an expression is true or false, and never null, in all rows."""
    parsed = parse(expression)
    reads = columns(parsed)
    if not all(name in rows.column_names and _without_nulls(rows.column(name)) for name in reads):
        return False
    try:
        kinds = {name: kind_of_type(rows.schema.field(name).type, name) for name in reads}
        return kind(parsed, kinds) == "truth"
    except ConfigError:  # an earlier step casts the column to a supported type
        return False


def _without_nulls(values: pa.ChunkedArray) -> bool:
    if values.null_count:
        return False
    return not (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def count_lost(table: pa.Table, schema: Schema) -> dict[str, Counter[str]]:
    """Count the nulls and overflows of labels after `with_exact_labels`; sampled negatives may have null labels."""
    sampled = next((column.name for column in schema.in_table(None) if column.role is Role.SAMPLED), None)
    lost = {}
    for label in schema.labels:
        if EXACT + label.name not in table.column_names:
            continue
        exact = table.column(EXACT + label.name).to_numpy()
        null = np.isnan(exact)
        if sampled is not None:
            null &= table.column(sampled).to_numpy() == 0
        wrong = int(_unfit(exact, label.dtype).sum())
        lost[label.name] = Counter({"null": int(null.sum()), "unfit": wrong, "rows": len(exact)})
    return lost


def refuse_lost(lost: Mapping[str, Mapping[str, int]], where: str, schema: Schema) -> None:
    """Refuse labels that overflow their type."""
    for name, counts in lost.items():
        if counts.get("unfit"):
            raise unfit(name, counts["unfit"], f"of {counts['rows']:,} rows of {where}", schema[name].dtype)


def unfit(label: str, count: int, where: str, dtype: str) -> DataError:
    """Return the error for labels that overflow their type."""
    return DataError(
        f"the label {label}: {count:,} {where} overflow {dtype}",
        hint="set a wider type for its op in features.ops, such as dtype: float32",
    )


def check_fits(label: str, exact: pa.ChunkedArray, dtype: str) -> None:
    """Refuse values of a label (float64, NaN for null) that overflow its integer type."""
    wrong = int(_unfit(exact.to_numpy(), dtype).sum())
    if wrong:
        raise unfit(label, wrong, "rows of one batch", dtype)


def _unfit(exact: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.bool_]:
    """Return a mask of overflows of an integer type after truncation; False for NaN."""
    ends = np.iinfo(dtype)
    low, high = float(ends.min), float(ends.max)  # for int64 rounded to ±2^63, where the spacing of float64 is 1,024
    return (exact < low) & (exact <= low - 1) | (exact > high) & (exact >= high + 1)
