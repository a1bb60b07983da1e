"""Out-of-fold features of train rows: the features of a row are fitted without its fold and so without its label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from recsys_cli.features.schema import Schema
from recsys_cli.models.collaborative.config import CollaborativeOptions
from recsys_cli.models.collaborative.features import CollaborativeFeatures
from recsys_cli.models.collaborative.rows import Categories, Rows


def fit_folds(
    config: CollaborativeOptions,
    schema: Schema,
    categories: Categories,
    rows: Rows,
    fold: Tensor,
    *,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[CollaborativeFeatures]:
    """Return for each fold the features fitted to the rows of the other folds.

    Args:
        config: Widths, penalties and the number of folds.
        schema: The prepared columns.
        categories: The categorical columns.
        rows: Train rows, on the CPU.
        fold: Fold of each row, shape (N,).
        seed: Seed of the initial factors.
        progress: Called with the number of fitted folds.
    """
    parts = []
    for number in range(config.folds):
        part = CollaborativeFeatures(config, schema, categories)
        part.fit(rows.select(fold != number), seed=seed)
        parts.append(part)
        progress(number + 1)
    return parts


def out_of_fold(parts: Sequence[CollaborativeFeatures], rows: Rows, fold: Tensor) -> Tensor:
    """Return the features of each row from the part of its fold; shape (N, F), float32."""
    columns = [part.columns(rows.select(fold == number)) for number, part in enumerate(parts)]
    return torch.cat(columns)[torch.argsort(torch.argsort(fold, stable=True))]
