"""Self-attentive sequential recommendation."""

from __future__ import annotations

from torch import Tensor, nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.sasrec.config import Config
from recsys_cli.models.sequence.model import SequenceModel
from recsys_cli.models.sequence.transformer import Transformer

_WEIGHT_STD = 0.02


class Model(SequenceModel):
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
        self.network = Transformer(config, causal=True, hidden=config.embedding_dim, activation=nn.ReLU).apply(
            _begin_small
        )

    def states(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return what is told after each item, shape (B, L, D)."""
        states: Tensor = self.network(vectors, counts)
        return states


def _begin_small(module: nn.Module) -> None:
    """Draw the weights of a dense layer so that a block changes little of what it reads, at first.

    Items begin with small vectors, and what torch itself draws for a dense layer is several times larger. An item would be lost
    in what the blocks add to it, and much of training would go into finding it again. Here an item's own state tells what
    follows; `bert4rec`, where a mask tells, learns more slowly with it on MovieLens and goes without.

    Args:
        module: Changed in place where it is an `nn.Linear`; others are left as they are.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=_WEIGHT_STD)
        nn.init.zeros_(module.bias)
