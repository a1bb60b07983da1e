"""Sequence models over a Transformer or a GRU: sasrec, bert4rec and gru4rec."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.config import Placement
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.configs.sequence import BERT4RecConfig, GRU4RecConfig, SASRecConfig
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.layers import Dropout
from recsys_cli.models.sequence.histories import Group, Jagged, Windows
from recsys_cli.models.sequence.losses import repeats
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Transformer, init_small


class SASRec(SequenceModel):
    """SASRec: causal self-attention; the state at each item predicts the next one.

    Kang and McAuley, "Self-attentive sequential recommendation" (2018), with pre-norm blocks, and a sampled softmax in
    place of binary cross-entropy: the loss makes its quality (Klenitskiy and Vasilev, "Turning dross into gold loss",
    2023).
    """

    config: SASRecConfig

    def __init__(
        self, config: SASRecConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema, sparse=sparse, placement=placement)
        self.network = Transformer(config, causal=True, hidden=config.embedding_dim, activation=nn.ReLU).apply(
            init_small
        )

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the prediction after each item, shape (P, D)."""
        del times
        states: Tensor = self.network(vectors, layout, at=at)
        return states


class GRU4Rec(SequenceModel):
    """GRU4Rec: a GRU over the user history, and a dense layer from its state to the vector of the next item.

    Hidasi et al., "Session-based recommendations with recurrent neural networks" (2016), with sampled softmax and tied
    embeddings as in Hidasi and Karatzoglou, "Recurrent neural networks with top-k gains for session-based
    recommendations" (2018).
    """

    config: GRU4RecConfig

    def __init__(
        self, config: GRU4RecConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema, sparse=sparse, placement=placement)
        self.dropout = Dropout(config.dropout or 0.0)
        between = (config.dropout or 0.0) if config.num_layers > 1 else 0.0
        self.network = nn.GRU(
            config.embedding_dim, config.hidden_size, config.num_layers, batch_first=True, dropout=between
        )
        self.outward = nn.Linear(config.hidden_size, config.embedding_dim)

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the prediction after each item, shape (P, D)."""
        del times
        # Each group costs steps as many as its length, so few of them. A `PackedSequence` takes twice as long on a CPU.
        inputs = self.dropout(vectors * self.config.embedding_dim**0.5)
        states = Jagged(layout.counts, similarity=0.5).map(self._states, inputs)
        outward: Tensor = self.outward(self.dropout(states if at is None else states[at]))
        return outward

    def _states(self, group: Group, inputs: Tensor) -> Tensor:
        del group  # a GRU is causal, and padding is at the end
        states: Tensor = self.network(inputs)[0]
        return states


class BERT4Rec(SequenceModel):
    """BERT4Rec: training predicts randomly masked items; scoring predicts a mask after the latest item.

    Sun et al., "BERT4Rec: sequential recommendation with bidirectional encoder representations from Transformer" (2019), with
    pre-norm blocks and the sampled softmax of the other sequence models. Items have no bias, so that a score is a dot product.
    """

    config: BERT4RecConfig

    def __init__(
        self, config: BERT4RecConfig, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
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
