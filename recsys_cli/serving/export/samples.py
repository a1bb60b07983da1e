"""Random rows for the check of exported programs."""

from __future__ import annotations

import numpy as np
import torch

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import NULL, Column, Kind
from recsys_cli.serving.served import ServedModel

_LONGEST = 5
"""Maximum length of a random list."""


def encoded_sample(served: ServedModel, num_rows: int, *, seed: int = 0) -> Batch:
    """Return rows with random ids, null and unseen among them, joined features, and the table rows of keys."""
    rng = np.random.default_rng(seed)
    keys = {column.name: _rows(served, column, num_rows, rng) for column in _keys(served)}
    features: dict[str, Feature] = served.tables.join(keys)
    for column in served.schema.features:
        if column.name not in features:
            features[column.name] = _feature(column, num_rows, rng)
    return Batch(features | {row_column(key): rows for key, rows in keys.items()}, {})


def _keys(served: ServedModel) -> list[Column]:
    return [column for column in served.schema.categorical if served.tables.num_rows(column.name)]


def _rows(served: ServedModel, column: Column, num_rows: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(NULL, served.tables.num_rows(column.name), num_rows))


def _feature(column: Column, num_rows: int, rng: np.random.Generator) -> Feature:
    if not column.ragged and column.kind is Kind.NUMERIC:
        return torch.from_numpy(rng.standard_normal(num_rows, dtype=np.float32))
    if not column.ragged:
        return torch.from_numpy(rng.integers(NULL, int(column.cardinality or 0), num_rows))
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(rng.integers(0, _LONGEST, num_rows)))))
    size = int(offsets[-1])
    if column.kind is Kind.NUMERIC:
        return Ragged(torch.from_numpy(rng.standard_normal(size, dtype=np.float32)), offsets)
    values = torch.from_numpy(rng.integers(NULL, int(column.cardinality or 0), size))
    weights = None if column.weights is None else torch.from_numpy(rng.random(size, dtype=np.float32))
    return Ragged(values, offsets, weights)
