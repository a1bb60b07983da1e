"""Logistic regression."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.logistic.config import Config
from recsys_cli.models.ranking.factorization import FirstOrder
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers


class Model(RankingModel):
    """logit = w0 + Σ wi xi for each label, with a weight per id and a slope per numeric feature."""

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        self.first_order = FirstOrder(schema, sparse=sparse, placement=placement)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights = self.first_order.weights.lookups(batch)
        return self.first_order(weights, numbers(batch, self.numeric)), [*weights.values()]
