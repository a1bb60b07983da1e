"""Batches of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.features.hashing import mix
from recsys_cli.loader.order import Permutation
from recsys_cli.loader.steps import EpochSteps

_SHUFFLE = 0x4D52
"""Seed offset of the order of rows."""


class MemoryLoader(EpochSteps):
    """Batches of given rows without weights, on their device, shuffled by (seed, epoch)."""

    def __init__(self, rows: Batch, *, batch_size: int, seed: int, parts: int = 1) -> None:
        self._rows = rows
        super().__init__(self._rows.num_rows, batch_size=batch_size, rank=0, world_size=1, parts=parts)
        self._seed = seed

    def _batches(self, first: int) -> Iterator[Batch]:
        order = Permutation(self.num_rows, mix(self._seed, _SHUFFLE, self._epoch))
        for step in range(first, len(self)):
            rows = np.concatenate([order(*span) for span in self._partition.spans(step, 0)])
            self._step = step + 1
            yield _picked(self._rows, torch.from_numpy(rows.astype(np.int64)))


def _picked(rows: Batch, index: Tensor) -> Batch:
    """Return some rows of a batch."""
    features = {name: _picked_feature(feature, index) for name, feature in rows.features.items()}
    weight = None if rows.weight is None else rows.weight[index.to(rows.weight.device)]
    return Batch(features, {name: label[index.to(label.device)] for name, label in rows.labels.items()}, weight)


def _picked_feature(feature: Feature, index: Tensor) -> Feature:
    if isinstance(feature, Tensor):
        return feature[index.to(feature.device)]
    starts, lengths = feature.offsets[:-1], feature.offsets.diff()
    index = index.to(starts.device)
    offsets = torch.cat([lengths.new_zeros(1), lengths[index].cumsum(0)])
    elements = torch.arange(int(offsets[-1]), device=starts.device)
    elements += (starts[index] - offsets[:-1]).repeat_interleave(offsets.diff())
    weights = None if feature.weights is None else feature.weights[elements]
    return Ragged(feature.values[elements], offsets, weights)
