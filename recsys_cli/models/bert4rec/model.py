"""Items that are masked, told from those on both sides."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.bert4rec.config import Config
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.sequence.histories import Windows, first_places, within
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Transformer


class Model(SequenceModel):
    """Some items of a sequence are replaced by a mask and told; what comes next is told by a mask after the last item.

    Sun et al., "BERT4Rec: sequential recommendation with bidirectional encoder representations from Transformer" (2019), with
    the normalisation before each part, and the loss of the other models of sequences. Items have no bias, so that a score
    is a product.
    """

    config: Config

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema, sparse=sparse, placement=placement)
        dim = config.embedding_dim
        self.mask = nn.Parameter(torch.empty(dim).normal_(std=INITIAL_STD))
        self.network = Transformer(config, causal=False, hidden=4 * dim, activation=nn.GELU)
        self.outward = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))

    def states(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return the states of items from both sides, shape (B, L, D)."""
        states: Tensor = self.network(vectors, counts)
        return states

    @property
    def window(self) -> int:
        """What is read: the mask is among it."""
        return self.length

    def targets_of(self, items: float) -> float:
        """Return how many items are masked."""
        return (1 - self.config.last_share) * self.config.mask_share * items + self.config.last_share

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Mask some items and tell them; the last one where none was drawn."""
        asked = self._drawn(windows)
        states = self.states(torch.where(asked.unsqueeze(2), self.mask, vectors), windows.counts)
        return asked, self.outward(states[asked])

    def ruled_out(self, windows: Windows, asked: Tensor, drawn: Tensor) -> Tensor:
        """Rule out what is masked at the place, and all that is not masked; what other masks hide is not known there."""
        read = windows.items.masked_fill(asked, PADDING)
        rows = asked.nonzero()[:, 0]
        return (first_places(read, drawn) < read.shape[1])[rows] | (windows.items[asked].unsqueeze(1) == drawn)

    def encode(self, users: Tensor) -> Tensor:
        """Return what a mask after the latest items tells, shape (B, D)."""
        windows = self.histories.last(users, self.length - 1)
        items = nn.functional.pad(windows.items, (0, 1))
        vectors = self.item_vectors(items.flatten()).view(*items.shape, -1)
        after = _at(windows.counts, items.shape[1])
        states = self.states(torch.where(after.unsqueeze(2), self.mask, vectors), windows.counts + 1)
        vector: Tensor = self.outward(states[after])
        return vector

    def _drawn(self, windows: Windows) -> Tensor:
        """Draw what is masked; bool, shape (B, W)."""
        there = windows.there
        asked = there & (torch.rand(there.shape, device=there.device) < self.config.mask_share)
        alone = torch.rand(len(there), device=there.device) < self.config.last_share
        alone |= ~asked.any(dim=1)
        return torch.where(alone.unsqueeze(1), _at(windows.counts - 1, there.shape[1]), asked)


def _at(places: Tensor, length: int) -> Tensor:
    """Return a row of `length` for each place, True at the place alone; all False where it is not from 0 to length - 1."""
    return within(places + 1, length) & ~within(places, length)
