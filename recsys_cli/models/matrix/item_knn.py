"""ItemKNN."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.matrix import ItemKNNConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix, transpose
from recsys_cli.models.item_to_item import ItemToItemModel
from recsys_cli.models.matrix.neighbors import Neighbors, multiply
from recsys_cli.models.model import Progress

_BLOCK = 1 << 21
"""Similarities per block; small enough to stay in the CPU cache between operations."""
_LEAST = 1e-12
"""Minimum shrinkage, against division by zero."""


class ItemKNN(ItemToItemModel):
    """An item's score is the sum of its weighted cosine similarities, by common users, to the user history's nearest neighbors."""

    deterministic = True
    learnt: Neighbors

    def __init__(self, config: ItemKNNConfig, schema: Schema) -> None:
        super().__init__(schema, positive_only=config.positive_only, max_items=None)
        self.config = config
        self.learnt = Neighbors(self.num_items, min(config.num_neighbors, max(1, self.num_items - 1)))

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Multiply blocks of columns with all columns, and keep the largest similarities of each."""
        if not matrix.num_items:
            return
        values = self._weights(matrix)
        lengths = torch.bincount(matrix.items, values.square(), minlength=matrix.num_items).sqrt().float()
        by_user = Ragged(matrix.items, matrix.offsets, values)
        by_item, nearest = transpose(by_user, matrix.num_items), []
        step = max(1, _BLOCK // max(1, matrix.num_items))
        products, scale = torch.empty(2, min(step, matrix.num_items), matrix.num_items, device=values.device)
        shrinkage = lengths.new_tensor(max(self.config.shrinkage, _LEAST))
        for start in range(0, matrix.num_items, step):
            stop = min(start + step, matrix.num_items)
            block = multiply(by_item.span(start, stop), by_user, out=products[: stop - start])
            if self.config.normalize:
                block /= torch.addr(shrinkage, lengths[start:stop], lengths, out=scale[: stop - start])
            block.diagonal(start).zero_()
            nearest.append(block.topk(self.learnt.number, dim=1))
            progress(stop, matrix.num_items)
        keys = torch.cat([block.indices for block in nearest]) * matrix.num_items
        keys += torch.arange(matrix.num_items, device=keys.device).unsqueeze(1)
        self.learnt.keep(keys.flatten(), torch.cat([block.values for block in nearest]).flatten())

    def _weights(self, matrix: InteractionMatrix) -> Tensor:
        """Return the weight of each element of the matrix; float32.

        Items are the documents and users the terms: idf = log(number of items) - log(1 + items of the user). BM25 multiplies idf
        by (k1 + 1) / (k1 (1 - b + b length / mean length) + 1) (Robertson and Zaragoza, 2009, eq. 3.15).
        """
        if self.config.weighting == "none":
            return torch.ones(len(matrix.items), device=matrix.items.device)
        lengths = matrix.offsets.diff()
        idf = (matrix.num_items / (1.0 + lengths)).log().clamp(min=0).repeat_interleave(lengths)
        if self.config.weighting == "tfidf":
            return idf
        k1, b, popularity = self.config.k1, self.config.b, matrix.counts.float()
        longer = 1 - b + b * popularity / popularity.mean()
        return idf * ((k1 + 1) / (k1 * longer + 1))[matrix.items]
