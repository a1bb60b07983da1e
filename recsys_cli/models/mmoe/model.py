"""MMoE (Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts", KDD 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_cli.models.mmoe.config import Config
from recsys_cli.models.ranking.experts import ExpertModel, expert, mix


class Model(ExpertModel):
    """y_k = h_k(Σᵢ g_k(x)ᵢ f_i(x)) with g_k(x) = softmax(W_k x) for each label k, over shared experts f_i (eq. 5 to 7)."""

    def _add_experts(self, config: Config, width: int) -> None:
        self.experts = nn.ModuleList(expert(config, width) for _ in range(config.num_experts))
        self.gates = nn.ModuleList(nn.Linear(width, config.num_experts, bias=False) for _ in self.labels)

    def mixtures(self, features: Tensor) -> list[Tensor]:
        """Return the mixture of each label, shape (B, D) each."""
        experts = torch.stack([layers((), features) for layers in self.experts], dim=1).relu()
        return [mix(gate(features), experts) for gate in self.gates]
