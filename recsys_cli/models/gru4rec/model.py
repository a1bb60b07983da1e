"""GRU4Rec."""

from __future__ import annotations

from torch import Tensor, nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.gru4rec.config import Config
from recsys_cli.models.sequence.jagged import Group, Jagged
from recsys_cli.models.sequence.model import SequenceModel


class Model(SequenceModel):
    """GRU4Rec: a GRU over the user history, and a dense layer from its state to the vector of the next item.

    Hidasi et al., "Session-based recommendations with recurrent neural networks" (2016), with sampled softmax and tied
    embeddings as in Hidasi and Karatzoglou, "Recurrent neural networks with top-k gains for session-based
    recommendations" (2018).
    """

    config: Config

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
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
