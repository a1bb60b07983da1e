"""The MLP of deep ranking models and of two-tower encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from recsys_cli.models.batch_norm import BatchNorm
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.ranking.dense import ConcatLinear
from recsys_cli.models.ranking.options import TowerOptions


class Tower(nn.Module):
    """MLP over concatenated embeddings and numeric input; all layers but the last are followed by ReLU, BatchNorm and dropout.

    Numeric input, as any dense one, follows the embeddings of widths `dims`. BatchNorm normalizes the scale of the
    embeddings, so that an L2 penalty on them no longer prevents overfitting.
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

    @classmethod
    def of(cls, options: TowerOptions, dims: Mapping[str, int], num_numeric: int, num_labels: int) -> Tower:
        """Build the MLP of a ranking model over embeddings of widths `dims`, with an output per label."""
        return cls(
            list(dims.values()), num_numeric, (*options.hidden_dims, num_labels), dropout=options.dropout,
            embedding_dropout=options.embedding_dropout, batch_norm=options.batch_norm,
        )  # fmt: skip

    def forward(self, lookups: Sequence[Lookup], numbers: Tensor) -> Tensor:
        """Return the output of the last layer; shape (B, widths[-1])."""
        dropout = self.embedding_dropout if self.training and self.embedding_dropout.p else None
        output: Tensor = self.rest(self.first(lookups, numbers, dropout=dropout))
        return output


def _after(width: int, widths: list[int], dropout: float, *, batch_norm: bool) -> list[nn.Module]:
    """Return the modules after a dense layer: its activation, and the following layers."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *widths], widths, strict=False):
        layers.append(nn.ReLU())
        if batch_norm:
            layers.append(BatchNorm(before))
        if dropout:
            layers.append(Dropout(dropout))
        layers.append(nn.Linear(before, after))
    return layers
