"""Factorization machine."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.fm.config import Config
from recsys_cli.models.ranking.factorization import FactorizationMachine
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers


class Model(RankingModel):
    """logit = w0 + Σ wi xi + Σ <vi, vj> xi xj for each label, over all pairs i < j of features (Rendle 2010)."""

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        self.machine = FactorizationMachine(schema, config.embedding_dim, sparse=sparse, placement=placement)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights, vectors = self.machine.look_up(batch)
        return self.machine(weights, vectors, numbers(batch, self.numeric)), [*weights.values(), *vectors.values()]
