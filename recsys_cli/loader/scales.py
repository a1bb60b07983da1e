"""In which units labels are that are numbers: where they lie in train, and how far from each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_cli.features.schema import Column
from recsys_cli.loader.reading import open_parquet
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class LabelScale:
    """What a label's values are like.

    Attributes:
        mean: Their mean.
        deviation: Their standard deviation; 1 where all are the same, so that one may divide by it.
    """

    mean: float
    deviation: float


def scales(data: PreparedData) -> dict[str, LabelScale]:
    """Return the scale in train of each label that is a number, by name.

    Raises:
        DataError: A file is not readable.
    """
    return {column.name: _scale(data, column) for column in data.schema.labels if column.is_regression}


def _scale(data: PreparedData, column: Column) -> LabelScale:
    """Add parts up as Chan, Golub and LeVeque (1983) do, so that a mean far from zero costs no digits."""
    rows, mean, squares = 0, 0.0, 0.0
    for path in data.shards("train"):
        with open_parquet(path) as file:
            for part in file.iter_batches(columns=[column.name]):
                values = part.column(0).drop_null().to_numpy(zero_copy_only=False).astype(np.float64)
                if not len(values):
                    continue
                apart = float(values.mean()) - mean
                total = rows + len(values)
                squares += float(values.var()) * len(values) + apart**2 * rows * len(values) / total
                mean += apart * len(values) / total
                rows = total
    return LabelScale(mean, float(np.sqrt(squares / rows)) if squares else 1.0)
