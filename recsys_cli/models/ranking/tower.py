"""A tower of dense layers: what every deep ranking model ends in, or has a part of."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from recsys_cli.models.batch_norm import BatchNorm
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.ranking.dense import ConcatLinear


class Tower(nn.Module):
    """Dense layers over the concatenation of embeddings and numbers; each but the last has ReLU, BatchNorm and dropout after it.

    What is no lookup, such as the output of another layer, goes in with the numbers.

    Args:
        dims: Widths of the embeddings, in the order in which the lookups come.
        num_numeric: How many numbers follow them.
        widths: Of the layers; at least one, the last is the output.
        dropout: Share of each layer's outputs to drop in training.
        embedding_dropout: Share of the embeddings' elements to drop in training.
        batch_norm: Whether there is BatchNorm. It takes the scale out of what embeddings tell, so that making them small costs
            nothing, and a price on their size keeps nothing from overfitting.
    """

    def __init__(
        self,
        dims: Sequence[int],
        num_numeric: int,
        widths: Sequence[int],
        *,
        dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        first, *rest = widths
        self.embedding_dropout = Dropout(embedding_dropout)
        self.first = ConcatLinear(dims, num_numeric, first)
        self.rest = nn.Sequential(*_after(first, rest, dropout, batch_norm=batch_norm)) if rest else nn.Identity()

    def forward(self, lookups: Sequence[Lookup], numbers: Tensor) -> Tensor:
        """Return the output of the last layer; shape (B, widths[-1])."""
        drops = self.training and self.embedding_dropout.p
        output: Tensor = self.rest(self.first(lookups, numbers, dropout=self.embedding_dropout if drops else None))
        return output


def _after(width: int, widths: list[int], dropout: float, *, batch_norm: bool) -> list[nn.Module]:
    """Return what follows a dense layer of a width: its non-linearity, and the layers after it."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *widths], widths, strict=False):
        layers.append(nn.ReLU())
        if batch_norm:
            layers.append(BatchNorm(before))
        if dropout:
            layers.append(Dropout(dropout))
        layers.append(nn.Linear(before, after))
    return layers
