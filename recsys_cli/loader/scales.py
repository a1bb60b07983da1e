"""Mean and standard deviation of numeric labels in train."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_cli.features.schema import Column
from recsys_cli.loader.reading import open_parquet
from recsys_cli.workspace import PreparedData


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
