"""DIN (Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from recsys_cli.models.din.config import Config
from recsys_cli.models.history.attentive import AttentiveModel
from recsys_cli.models.history.events import Events


class ActivationUnit(nn.Module):
    """Sum of a history by attention to the target: v(A) = Σⱼ a(eⱼ, v_A) eⱼ, an MLP a over e, v and e ⊙ v (eq. 3).

    The weights are not normalized: their sum is the strength of the interest. The activation is PReLU. Its data-dependent
    variant Dice (eq. 4) needs statistics of the batch, and e - v, which the authors' code adds, is linear in the others.

    Args:
        dim: Width of the embeddings.
        dims: Widths of the MLP's layers.
    """

    def __init__(self, dim: int, dims: Sequence[int]) -> None:
        super().__init__()
        first, *rest = dims
        self.event, self.target, self.product = (nn.Linear(dim, first, bias=bias) for bias in (True, False, False))
        layers: list[nn.Module] = [nn.PReLU()]
        for before, after in zip([first, *rest], rest, strict=False):
            layers += [nn.Linear(before, after), nn.PReLU()]
        self.rest = nn.Sequential(*layers, nn.Linear(dims[-1], 1))

    def forward(self, events: Events) -> Tensor:
        """Return the weighted sum, shape (B, E); zero for an empty history."""
        vectors, target = events.vectors(), events.target.unsqueeze(1)
        hidden = self.event(vectors) + self.target(target) + self.product(vectors * target)
        weights = self.rest(hidden).squeeze(2).masked_fill(~events.window.mask, 0)
        return (weights.unsqueeze(1) @ vectors).squeeze(1)


class Model(AttentiveModel):
    """An MLP over embeddings, numeric features and the attended history."""

    @staticmethod
    def attention_of(config: Config, dim: int) -> tuple[nn.Module, int]:
        """Return the activation unit and its width."""
        return ActivationUnit(dim, config.attention_dims), dim
