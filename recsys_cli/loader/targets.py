"""What a loss is made of beside the scores, checked before training: labels and weights that would lead it astray in silence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Column
from recsys_cli.loader.reading import open_parquet, row_groups
from recsys_cli.workspace import PreparedData


def check_targets(data: PreparedData) -> None:
    """Refuse labels that cannot be learnt, and weights that are no weights, in train and valid.

    Binary cross-entropy would go down without end for a label of 5 or a weight of -1.

    Raises:
        DataError: A label is missing; it is not from 0 to 1, or of a number infinite; a weight is missing, negative or infinite;
            or a file is unreadable.
    """
    schema, splits = data.schema, [split for split in ("train", "valid") if split == "train" or data.rows(split)]
    for split in splits:
        for column in schema.labels:
            _check_label(_values(data, split, column), column, split)
        if schema.weight is not None:
            _check_weight(_values(data, split, schema.weight), schema.weight.name, split)


def as_number(name: str) -> str:
    """Return what to write in a config so that a label is predicted in its own units, as the end of a hint."""
    return f"or to predict the number itself, features.label: {{name: {name}, task: regression}}"


@dataclass
class _Values:
    """What a column's values are like: the least and the greatest, and how many are missing."""

    low: float = float("inf")
    high: float = float("-inf")
    missing: int = 0

    def add(self, low: float, high: float, missing: int) -> None:
        """Count more of them."""
        self.low, self.high, self.missing = min(self.low, low), max(self.high, high), self.missing + missing


def _check_label(values: _Values, column: Column, split: str) -> None:
    name = column.name
    if values.missing:
        raise DataError(
            f"{values.missing} rows of {split} have no label {name}",
            hint=f"leave them out in features.ops: {{op: Dropna, columns: [...]}} of the columns that {name} is made of",
        )
    if column.is_regression:
        if np.isinf([values.low, values.high]).any():
            raise DataError(
                f"the label {name} goes from {values.low:g} to {values.high:g} in {split}, and has to be finite",
                hint=f"make it so in features.ops: {{op: Clip, columns: [{name}], max_value: ...}}",
            )
    elif values.low < 0 or values.high > 1:
        raise DataError(
            f"the label {name} goes from {values.low:g} to {values.high:g} in {split}, and has to be 0 or 1",
            hint=f"make it so in features.ops, such as {{op: LambdaOp, expression: {name} > 3, output: label}}; "
            f"{as_number(name)}",
        )


def _check_weight(values: _Values, name: str, split: str) -> None:
    if values.missing:
        raise DataError(
            f"{values.missing} rows of {split} have no weight in {name}",
            hint=f"fill it in features.ops: {{op: FillMissing, columns: [{name}], fill_val: 1}}",
        )
    if values.low < 0 or values.high == float("inf"):
        raise DataError(
            f"the weight {name} goes from {values.low:g} to {values.high:g} in {split}, and has to be 0 or more and finite",
            hint=f"make it so in features.ops, such as {{op: Clip, columns: [{name}], min_value: 0}}",
        )


def _values(data: PreparedData, split: str, column: Column) -> _Values:
    """Look at a column: at its footers where they tell all, which they do not of numbers that are NaN."""
    found = _Values()
    for group in row_groups(data, split, [column]):
        with open_parquet(group.path) as file:
            metadata = file.metadata.row_group(group.index)
            statistics = metadata.column(file.schema_arrow.names.index(column.name)).statistics
            if _tells_all(statistics, file.schema_arrow.field(column.name).type):
                found.add(statistics.min, statistics.max, statistics.null_count)
            else:
                found.add(*_look(file.read_row_group(group.index, columns=[column.name])[column.name]))
    return found


def _tells_all(statistics: pq.Statistics | None, kind: pa.DataType) -> bool:
    return bool(statistics and statistics.has_min_max and statistics.has_null_count and not pa.types.is_floating(kind))


def _look(values: pa.ChunkedArray) -> tuple[float, float, int]:
    numbers = values.drop_null().to_numpy().astype(np.float64, copy=False)
    there = numbers[~np.isnan(numbers)]
    low, high = (float(there.min()), float(there.max())) if there.size else (float("inf"), float("-inf"))
    return low, high, len(values) - there.size
