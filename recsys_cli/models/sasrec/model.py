"""SASRec."""

from __future__ import annotations

from torch import Tensor, nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.sasrec.config import Config
from recsys_cli.models.sequence.jagged import Jagged
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Transformer, init_small


class Model(SequenceModel):
    """SASRec: causal self-attention; the state at each item predicts the next one.

    Kang and McAuley, "Self-attentive sequential recommendation" (2018), with pre-norm blocks, and a sampled softmax in
    place of binary cross-entropy: the loss makes its quality (Klenitskiy and Vasilev, "Turning dross into gold loss",
    2023).
    """

    config: Config

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
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
