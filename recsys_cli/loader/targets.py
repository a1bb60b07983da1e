"""Labels and row weights before training: validation, class balance and scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Column
from recsys_cli.loader.reading import open_parquet, row_groups
from recsys_cli.workspace import PreparedData


def check_targets(data: PreparedData) -> None:
    """Check the range of labels and row weights in train and valid.

    Binary cross-entropy has no lower bound for a label of 5 or a weight of -1.

    Raises:
        DataError: A label or weight is missing or out of range, or no row of train is positive.
    """
    schema, splits = data.schema, [split for split in ("train", "valid") if split == "train" or data.rows(split)]
    for split in splits:
        for column in schema.labels:
            values = _range(data, split, column)
            _check_label(values, column, split)
            if split == "train" and column is schema.labels[0] and not column.is_regression and values.high <= 0:
                raise DataError(
                    f"no row of train is positive: {column.name} is 0 in all",
                    hint=f"lower the threshold of the op that makes {column.name} in features.ops, or name another label",
                )
        if schema.weight is not None:
            _check_weight(_range(data, split, schema.weight), schema.weight.name, split)


def as_number(name: str) -> str:
    """Return the end of a hint: the config of a numeric label."""
    return f"or, to predict the number itself, set features.label: {{name: {name}, task: regression}}"


@dataclass
class _Range:
    low: float = float("inf")
    high: float = float("-inf")
    missing: int = 0

    def add(self, low: float, high: float, missing: int) -> None:
        self.low, self.high, self.missing = min(self.low, low), max(self.high, high), self.missing + missing


def _check_label(values: _Range, column: Column, split: str) -> None:
    name = column.name
    if values.missing:
        raise DataError(
            f"{values.missing} rows of {split} have no label {name}",
            hint=f"filter them in features.ops: {{op: Dropna, columns: [...]}} with the input columns of {name}",
        )
    if column.is_regression:
        if np.isinf([values.low, values.high]).any():
            raise DataError(
                f"the label {name} ranges from {values.low:g} to {values.high:g} in {split}; it must be finite",
                hint=f"clip it in features.ops: {{op: Clip, columns: [{name}], max_value: ...}}",
            )
    elif values.low < 0 or values.high > 1:
        raise DataError(
            f"the label {name} ranges from {values.low:g} to {values.high:g} in {split}; it must be 0 or 1",
            hint=f"derive it in features.ops, such as {{op: LambdaOp, expression: {name} > 3, output: label}}; "
            f"{as_number(name)}",
        )


def _check_weight(values: _Range, name: str, split: str) -> None:
    if values.missing:
        raise DataError(
            f"{values.missing} rows of {split} have no weight in {name}",
            hint=f"fill it in features.ops: {{op: FillMissing, columns: [{name}], fill_val: 1}}",
        )
    if values.low < 0 or values.high == float("inf"):
        raise DataError(
            f"the weight {name} ranges from {values.low:g} to {values.high:g} in {split}; it must be 0 or more and finite",
            hint=f"clip it in features.ops, such as {{op: Clip, columns: [{name}], min_value: 0}}",
        )


def _range(data: PreparedData, split: str, column: Column) -> _Range:
    """Return the range of a column, from footer statistics where possible; they ignore NaN."""
    total = _Range()
    for group in row_groups(data, split, [column]):
        with open_parquet(group.path) as file:
            metadata = file.metadata.row_group(group.index)
            statistics = metadata.column(file.schema_arrow.names.index(column.name)).statistics
            is_real = pa.types.is_floating(file.schema_arrow.field(column.name).type)  # NaN is in no statistics
            if statistics and statistics.has_min_max and statistics.has_null_count and not is_real:
                total.add(statistics.min, statistics.max, statistics.null_count)
            else:
                total.add(*_range_of_values(file.read_row_group(group.index, columns=[column.name])[column.name]))
    return total


def _range_of_values(values: pa.ChunkedArray) -> tuple[float, float, int]:
    numbers = values.drop_null().to_numpy().astype(np.float64, copy=False)
    valid = numbers[~np.isnan(numbers)]
    low, high = (float(valid.min()), float(valid.max())) if valid.size else (float("inf"), float("-inf"))
    return low, high, len(values) - valid.size


def negatives_per_positive(data: PreparedData, label: Column) -> float:
    """Return the ratio of negative to positive rows of train; a label between 0 and 1 counts in part for both.

    Raises:
        DataError: All rows are of one class.
    """
    rows, positive = 0, 0.0
    for path in data.shards("train"):
        with open_parquet(path) as file:
            for part in file.iter_batches(columns=[label.name]):
                rows += part.num_rows
                positive += float(np.sum(part.column(0).to_numpy(zero_copy_only=False), dtype=np.float64))
    if not 0 < positive < rows:
        raise DataError(
            f"train has only {'positive' if positive else 'negative'} rows by {label.name}: there is nothing to balance",
            hint="remove train.positive_weight, or check the ops of the label in features.ops",
        )
    return (rows - positive) / positive


@dataclass(frozen=True)
class LabelScale:
    """Mean and standard deviation of a numeric label; a deviation of 1 for constant values, for a safe division."""

    mean: float
    deviation: float


def scales(data: PreparedData) -> dict[str, LabelScale]:
    """Return the scale of each numeric label in train, by name."""
    return {column.name: _scale(data, column) for column in data.schema.labels if column.is_regression}


def _scale(data: PreparedData, column: Column) -> LabelScale:
    """Merge partial sums by Chan, Golub and LeVeque (1983), without cancellation."""
    rows, mean, squares = 0, 0.0, 0.0
    for path in data.shards("train"):
        with open_parquet(path) as file:
            for part in file.iter_batches(columns=[column.name]):
                values = part.column(0).drop_null().to_numpy(zero_copy_only=False).astype(np.float64)
                if not len(values):
                    continue
                delta = float(values.mean()) - mean
                total = rows + len(values)
                squares += float(values.var()) * len(values) + delta**2 * rows * len(values) / total
                mean += delta * len(values) / total
                rows = total
    return LabelScale(mean, float(np.sqrt(squares / rows)) if squares else 1.0)
