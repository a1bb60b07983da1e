"""Collaborative features as numeric columns of a batch, for gradient-trained models."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models.collaborative.config import CollaborativeOptions
from recsys_cli.models.collaborative.features import CollaborativeFeatures
from recsys_cli.models.collaborative.folds import average_of_folds, fit_folds, folds_of_pairs, out_of_fold
from recsys_cli.models.collaborative.rows import Categories, Rows
from recsys_cli.models.model import TrainingContext

_PREFIX = "\x01collaborative"
_FOLD_SEED = 17


def with_collaborative_columns(schema: Schema, config: CollaborativeOptions) -> Schema:
    """Return a schema with the numeric columns added by `CollaborativeColumns`."""
    with torch.device("meta"):
        count = CollaborativeFeatures(config, schema, Categories(schema, config.max_categories)).num_columns
    columns = (
        Column(name=f"{_PREFIX}{number}", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32")
        for number in range(count)
    )
    return Schema(columns=(*schema.columns, *columns))


class CollaborativeColumns(nn.Module):
    """Adds standardized collaborative features to a batch: out of fold in training, the mean over all folds in evaluation.

    Features fitted to all train rows would differ in scale from those of the folds: counts grow, and factors shrink less. A fold
    is a hash of (user, item), so every row of a pair is in the same fold. The mean is part of the checkpoint; the folds are fitted
    anew when training starts or resumes. Values outside of the folds' range are clipped: a column may be constant in training, such
    as the count of users with one row.

    Args:
        config: Widths, penalties and the number of folds.
        schema: Result of `with_collaborative_columns`.

    Raises:
        ConfigError: There is no label, or not one user and one item.
    """

    center: Tensor
    inverse_scale: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self, config: CollaborativeOptions, schema: Schema) -> None:
        super().__init__()
        self.names = [name for name in schema.names if name.startswith(_PREFIX)]
        self.schema = Schema(columns=schema.select(lambda column: not column.name.startswith(_PREFIX)))
        self.config, self.categories = config, Categories(self.schema, config.max_categories)
        self.average = average_of_folds(config, self.schema, self.categories)
        self.parts = nn.ModuleList(
            CollaborativeFeatures(config, self.schema, self.categories, persistent=False) for _ in range(config.folds)
        )
        self.register_buffer("center", torch.zeros(len(self.names)))
        self.register_buffer("inverse_scale", torch.ones(len(self.names)))
        self.register_buffer("lowest", torch.full((len(self.names),), torch.finfo().min))
        self.register_buffer("highest", torch.full((len(self.names),), torch.finfo().max))

    @torch.no_grad()
    def fit(self, context: TrainingContext) -> None:
        """Fit to the rows of train, on the CPU; a context without rows changes nothing."""
        batches = [Rows.of(batch.to("cpu"), self.schema, self.categories) for batch in context.batches()]
        if not batches:
            return
        rows = Rows.concat(batches)
        fold = self._folds(rows)
        parts = fit_folds(self.config, self.schema, self.categories, rows, fold, seed=0)
        average = average_of_folds(self.config, self.schema, self.categories, parts)
        for module, fitted in zip([self.average, *self.parts], [average, *parts], strict=True):
            for name, buffer in module.named_buffers():
                buffer.copy_(fitted.get_buffer(name))
        found = out_of_fold(parts, rows, fold)
        self.lowest.copy_(found.amin(0))
        self.highest.copy_(found.amax(0))
        columns = found.double()
        self.center.copy_(columns.mean(0))
        self.inverse_scale.copy_(1 / columns.std(0, correction=0).clamp(min=1e-6))

    @torch.no_grad()
    def forward(self, batch: Batch) -> Batch:
        """Return the batch with the columns added."""
        rows = Rows.of(batch, self.schema, self.categories)
        parts = [cast("CollaborativeFeatures", part) for part in self.parts]
        columns = out_of_fold(parts, rows, self._folds(rows)) if self.training else self.average.columns(rows)
        columns = (columns.clamp(self.lowest, self.highest) - self.center) * self.inverse_scale
        return replace(batch, features={**batch.features, **dict(zip(self.names, columns.unbind(1), strict=True))})

    def _folds(self, rows: Rows) -> Tensor:
        return folds_of_pairs(rows, self.config.folds, seed=_FOLD_SEED)
