"""Ranks items by how many rows of train they have."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.model import Fitted, Known, Progress, Recommender, unheard
from recsys_cli.models.popularity.config import Config


class Model(Fitted, Recommender):
    """The number of an item's rows in train, whatever their label, is its score for everybody."""

    counts: Tensor

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__()
        self.config = config
        self.item = schema.only(Role.ITEM)
        self.register_buffer("counts", torch.zeros(int(self.item.cardinality or 0), dtype=torch.int64))

    def fit(self, known: Known, *, progress: Progress = unheard) -> None:
        """Count."""
        del progress
        counts = np.bincount(known.interactions().item_idx, minlength=len(self.counts))
        self.counts.copy_(torch.from_numpy(counts))

    def score(self, batch: Batch) -> Tensor:
        """Return the counts of the rows' items; shape (B,)."""
        items = batch.features[self.item.name]
        assert isinstance(items, Tensor)
        return self.counts[items.long()].float()

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the counts once for each user; shape (U, I)."""
        # Counts above 2**24 would lose their last digits; the ranking breaks such ties by the exact count.
        return self.counts[items].float().expand(len(users), -1)
