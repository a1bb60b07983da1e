"""BERT4Rec."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.config import Placement
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.bert4rec.config import Config
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.sequence.false_negatives import repeats
from recsys_cli.models.sequence.histories import Windows
from recsys_cli.models.sequence.jagged import Jagged
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

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the bidirectional states of the items, shape (P, D)."""
        del times
        states: Tensor = self.network(vectors, layout, at=at)
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
        inputs, places = torch.where(targets.unsqueeze(1), self.mask, vectors), targets.nonzero().squeeze(1)
        return targets, self.outward(self.states(inputs, windows.layout, at=places))

    def false_negatives(self, windows: Windows, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets for which each item is a false negative: itself, and of an unmasked item all of the window."""
        layout = windows.layout
        before = F.pad(targets.cumsum(0), (1, 0))
        first, last = before[layout.offsets[:-1]][layout.rows], before[layout.offsets[1:]][layout.rows]
        last = torch.where(repeats(windows.items.masked_fill(targets, PADDING), layout.rows), first, last)
        return torch.where(targets, before[:-1], first), torch.where(targets, before[1:], last)

    def encode(self, users: Tensor) -> Tensor:
        """Return the prediction of a mask after the latest items, shape (B, D)."""
        windows = self.histories.last(users, self.length - 1)
        layout = Jagged(windows.counts + 1)
        is_mask = layout.positions == windows.counts[layout.rows]
        vectors = self.mask.expand(len(is_mask), -1).clone()
        vectors[~is_mask] = self.window_vectors(windows)[windows.items != PADDING]
        vector: Tensor = self.outward(self.states(vectors, layout, at=layout.last))
        return vector

    def _sample_masks(self, windows: Windows) -> Tensor:
        layout, items = windows.layout, windows.items != PADDING
        masked = items & (torch.rand(items.shape, device=items.device) < self.config.mask_share)
        last_only = torch.rand(len(windows.counts), device=items.device) < self.config.last_share
        last_only |= torch.bincount(layout.rows[masked], minlength=len(last_only)) == 0
        last = torch.zeros_like(masked).index_fill_(0, layout.last, value=True) & items
        return torch.where(last_only[layout.rows], last, masked)
