"""SLIM."""

from __future__ import annotations

from recsys_cli.features.schema import Schema
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import DenseWeights, ItemToItemModel, gram
from recsys_cli.models.model import Progress
from recsys_cli.models.slim.config import Config
from recsys_cli.models.slim.descent import columns

_BLOCK = 1024
"""Columns per block."""


class Model(ItemToItemModel):
    """W minimizes ½|X - XW|² + β/2 |W|² + λ|W|₁ with W >= 0 and a zero diagonal (Ning and Karypis 2011, eq. 3)."""

    deterministic = True
    learnt: DenseWeights

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__(schema, positive_only=config.positive_only, max_items=config.max_items)
        self.config = config
        self.learnt = DenseWeights(self.num_items)

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Solve for blocks of columns of W."""
        config, counts = self.config, gram(matrix)
        # A non-zero weight needs more than λ common users, so items with fewer users are skipped.
        size = int((counts.diagonal() > config.l1).sum())
        counts = counts[:size, :size].contiguous()
        self.learnt.weights.zero_()
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            self.learnt.weights[:size, start:stop] = columns(
                counts,
                start,
                stop,
                l1=config.l1,
                l2=config.l2,
                tolerance=config.tolerance,
                max_sweeps=config.max_sweeps,
            )
            progress(stop, size)
