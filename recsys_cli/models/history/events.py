"""Embeddings of a row's item and of its history in one space, for attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.models.embedding import Embeddings, Lookup
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.history.reader import HistoryReader
from recsys_cli.models.history.store import Window

_LABEL_DIM = 8
_ROWS = 2_048
"""Rows of an attention at once without gradients; affects only memory."""


@dataclass(frozen=True)
class Events:
    """The target item and the history of each of B rows.

    Attributes:
        target: Embedding of the row's item, shape (B, E).
        distinct: Embeddings of the distinct items of all histories, shape (U, E), without the label.
        index: Index into `distinct`, shape (B, L).
        label: Embeddings of other and of positive events, shape (2, E).
        window: The histories.
    """

    target: Tensor
    distinct: Tensor
    index: Tensor
    label: Tensor
    window: Window

    def span(self, start: int, stop: int) -> Events:
        """Return the rows start, …, stop - 1, without columns of padding at the end."""
        parts = self.window.items, self.window.mask, self.window.is_positive
        width = max([1, *(parts[1][start:stop].any(0).nonzero() + 1).flatten().tolist()])
        window = Window(*(part[start:stop, :width] for part in parts))
        return replace(self, target=self.target[start:stop], index=self.index[start:stop, :width], window=window)

    def vectors(self) -> Tensor:
        """Return the embeddings of the histories, shape (B, L, E)."""
        return self.distinct[self.index] + self.label[self.window.is_positive.long()]

    def map(self, function: Callable[[Events], Tensor]) -> Tensor:
        """Return a function of the rows, (B, E) to (B, D); in small parts where no gradient is needed."""
        if torch.is_grad_enabled() or len(self.target) <= _ROWS:
            return function(self)
        return torch.cat([function(self.span(start, start + _ROWS)) for start in range(0, len(self.target), _ROWS)])


class EventEmbeddings(nn.Module):
    """Concatenated embeddings of an item, its categorical features, and the label of its interaction, zero for the target.

    History and target share the tables, as one lookup.

    Args:
        reader: Reader of the histories.
        embeddings: Tables of the model.
    """

    def __init__(self, reader: HistoryReader, embeddings: Embeddings) -> None:
        super().__init__()
        self._reader, self._embeddings = reader, [embeddings]  # a list, so that the tables have one owner
        self.names = tuple(column.name for column in reader.columns)
        self.item_dim = sum(embeddings.dims[name] for name in self.names)
        self.dim = self.item_dim + _LABEL_DIM
        self.label = nn.Parameter(torch.empty(2, _LABEL_DIM).normal_(std=INITIAL_STD))

    def forward(self, batch: Batch, *, training: bool) -> tuple[Events, Sequence[Lookup]]:
        """Return the events, and the lookups of the batch in the order of the tables."""
        window = self._reader.window(batch, training=training)
        distinct, index = torch.unique(window.items, return_inverse=True)
        of_items, num_rows = self._reader.features(distinct), batch.num_rows
        joined = {name: _join(batch.features[name], of_items[name]) for name in self.names}
        found = self._embeddings[0].lookups(Batch({**batch.features, **joined}, {}))
        lookups = {name: _first(found[name], num_rows) if name in joined else found[name] for name in found}
        target = torch.cat([lookups[name].spread() for name in self.names], dim=1)
        vectors = torch.cat([_rest(found[name], num_rows).spread() for name in self.names], dim=1)
        padding = target.new_zeros(1, _LABEL_DIM)
        label = torch.cat([self.label.new_zeros(2, self.item_dim), self.label], dim=1)
        target, vectors = (torch.cat([part, padding.expand(len(part), -1)], dim=1) for part in (target, vectors))
        return Events(target, vectors, index, label, window), list(lookups.values())


def _join(one: Feature, other: Feature) -> Feature:
    """Concatenate the rows of two batches."""
    if isinstance(one, Ragged) and isinstance(other, Ragged):
        weights = None
        if one.weights is not None or other.weights is not None:
            parts = (part.values.new_ones(part.values.shape, dtype=torch.float32) if part.weights is None else part.weights
                     for part in (one, other))  # fmt: skip
            weights = torch.cat([*parts])
        offsets = torch.cat([one.offsets, other.offsets[1:] + one.offsets[-1]])
        return Ragged(torch.cat([one.values, other.values.to(one.values.dtype)]), offsets, weights)
    assert isinstance(one, Tensor)
    assert isinstance(other, Tensor)
    return torch.cat([one, other.to(one.dtype)])


def _first(lookup: Lookup, num_rows: int) -> Lookup:
    """Return the first rows of a lookup."""
    if lookup.offsets is None:
        return replace(lookup, inverse=lookup.inverse[:num_rows])
    end = int(lookup.offsets[num_rows])
    weights = None if lookup.weights is None else lookup.weights[:end]
    return replace(lookup, inverse=lookup.inverse[:end], offsets=lookup.offsets[: num_rows + 1], weights=weights)


def _rest(lookup: Lookup, num_rows: int) -> Lookup:
    """Return the other rows of a lookup."""
    if lookup.offsets is None:
        return replace(lookup, inverse=lookup.inverse[num_rows:])
    start = int(lookup.offsets[num_rows])
    weights = None if lookup.weights is None else lookup.weights[start:]
    return replace(lookup, inverse=lookup.inverse[start:], offsets=lookup.offsets[num_rows:] - start, weights=weights)
