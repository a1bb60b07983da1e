"""Checks of labels and times: values that their type cannot hold, and rows without a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.features.columns import EXACT, ROW_NUMBER
from recsys_cli.features.schema import Role, Schema
from recsys_cli.ops import LambdaOp
from recsys_cli.ops.expression import columns, kind, kind_of_type, parse
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.scratch import Rows
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


@dataclass(frozen=True)
class Timed:
    """Interactions with a check of their times.

    Attributes:
        rows: The interactions; with ROW_NUMBER after filters.
        raw: The reader of the raw files, for the position of a row in an error; None if there is none.
    """

    rows: Rows
    column: str
    raw: Reader | None = None

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self.rows.schema()

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows; rows without a time are an error after the last one."""
        done = missing = 0
        first = None
        for batch in self.rows.batches():
            mask = without_time(batch.column(self.column))
            if mask is not None:
                positions = np.flatnonzero(mask)
                missing += len(positions)
                if first is None:
                    at = int(positions[0])
                    first = batch.column(ROW_NUMBER)[at].as_py() if ROW_NUMBER in batch.column_names else done + at
            done += batch.num_rows
            yield batch
        if first is not None:
            raise missing_times(self.column, missing, done, self._where(first))

    def _where(self, number: int) -> str:
        if self.raw is None:
            return f"row {number + 1}"
        for file in self.raw.table.files:
            reader = replace(self.raw, table=replace(self.raw.table, files=(file,)), rejected=[])
            rows = sum(batch.num_rows for batch in reader.batches())
            if number < rows:
                return f"row {number + 1} of {file}"
            number -= rows
        return f"row {number + 1}"


def timed(sources: Mapping[str, Rows], readers: Mapping[str, Reader], column: str | None) -> dict[str, Rows]:
    """Add the check of times to interactions, except without a time column before the split."""
    if column is None:
        return dict(sources)
    return {
        name: Timed(rows, column, readers.get(name)) if column in rows.schema().names else rows
        for name, rows in sources.items()
    }


def without_time(values: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Return a mask of null, NaN and infinite times; None if there are none."""
    missing = values.is_null().to_numpy() if values.null_count else None
    if pa.types.is_floating(values.type):
        not_finite = ~np.isfinite(values.cast(pa.float64()).fill_null(0.0).to_numpy())
        if not_finite.any():
            missing = not_finite if missing is None else not_finite | missing
    return missing


def missing_times(column: str, missing: int, rows: int, where: str) -> DataError:
    """Return the error about rows without a time; `where` is the position of the first one."""
    return DataError(
        f"{missing:,} of {rows:,} interactions have no {column}, the first is {where}, so their order is unknown",
        hint=f"drop them: put {{op: Dropna, columns: [{column}]}} first in features.ops; or, if nothing depends on the "
        "time, remove features.timestamp",
    )
