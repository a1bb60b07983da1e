"""Class balance of train: negative rows per positive row."""

from __future__ import annotations

import numpy as np

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Column
from recsys_cli.loader.reading import open_parquet
from recsys_cli.workspace import PreparedData


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
