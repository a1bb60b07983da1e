"""Self-attentive sequential recommendation."""

from __future__ import annotations

from torch import Tensor, nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.sasrec.config import Config
from recsys_cli.models.sequence.causal import CausalModel
from recsys_cli.models.sequence.transformer import Transformer, begin_small


class Model(CausalModel):
    """Each item attends to itself and those before it, and tells the one after it.

    Kang and McAuley, "Self-attentive sequential recommendation" (2018), with the normalisation before each part, and a
    sampled softmax over many items in place of binary cross-entropy against one: that loss, not the network, is what makes
    it good (Klenitskiy and Vasilev, "Turning dross into gold loss", 2023).
    """

    config: Config

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema, sparse=sparse, placement=placement)
        self.network = Transformer(config, causal=True, hidden=config.dim, activation=nn.ReLU).apply(begin_small)

    def states(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return what is told after each item, shape (B, L, D)."""
        states: Tensor = self.network(vectors, counts)
        return states
