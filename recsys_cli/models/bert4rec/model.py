"""BERT4Rec."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.bert4rec.config import Config
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.sequence.histories import Windows, first_positions, length_mask
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Transformer


class Model(SequenceModel):
    """BERT4Rec: training predicts randomly masked items; scoring predicts a mask after the latest item.

    Sun et al., "BERT4Rec: sequential recommendation with bidirectional encoder representations from Transformer" (2019), with
    pre-norm blocks and the sampled softmax of the other sequence models. Items have no bias, so that a score is a dot product.
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

    def states(self, vectors: Tensor, counts: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the bidirectional states of the items, shape (B, L, D)."""
        del times
        states: Tensor = self.network(vectors, counts)
        return states

    @property
    def window(self) -> int:
        """Length of the input, masks included."""
        return self.length

    def targets_of(self, items: float) -> float:
        """Return the expected number of masked items."""
        return (1 - self.config.last_share) * self.config.mask_share * items + self.config.last_share

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Predict randomly masked items; the last item if none was sampled."""
        targets = self._sample_masks(windows)
        states = self.states(torch.where(targets.unsqueeze(2), self.mask, vectors), windows.counts)
        return targets, self.outward(states[targets])

    def false_negatives(self, windows: Windows, targets: Tensor, negatives: Tensor) -> Tensor:
        """Return the mask of false negatives: the target itself and all unmasked items."""
        visible = windows.items.masked_fill(targets, PADDING)
        rows = targets.nonzero()[:, 0]
        in_input = (first_positions(visible, negatives) < visible.shape[1])[rows]
        return in_input | (windows.items[targets].unsqueeze(1) == negatives)

    def encode(self, users: Tensor) -> Tensor:
        """Return the prediction of a mask after the latest items, shape (B, D)."""
        windows = self.histories.last(users, self.length - 1)
        vectors = nn.functional.pad(self.window_vectors(windows), (0, 0, 0, 1))
        after = _one_hot(windows.counts, vectors.shape[1])
        states = self.states(torch.where(after.unsqueeze(2), self.mask, vectors), windows.counts + 1)
        vector: Tensor = self.outward(states[after])
        return vector

    def _sample_masks(self, windows: Windows) -> Tensor:
        items = windows.mask
        masked = items & (torch.rand(items.shape, device=items.device) < self.config.mask_share)
        last_only = torch.rand(len(items), device=items.device) < self.config.last_share
        last_only |= ~masked.any(dim=1)
        return torch.where(last_only.unsqueeze(1), _one_hot(windows.counts - 1, items.shape[1]), masked)


def _one_hot(positions: Tensor, length: int) -> Tensor:
    """Return one-hot rows, bool, shape (B, length); all False for positions outside 0 to length - 1."""
    return length_mask(positions + 1, length) & ~length_mask(positions, length)
