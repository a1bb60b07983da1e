"""DeepFM (Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", IJCAI 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.deepfm.config import Config
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.ranking.factorization import FactorizationMachine
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tower import Tower


class Model(RankingModel):
    """The logits are the sum of a factorization machine and an MLP with shared embeddings (eq. 1).

    The MLP reads numeric features directly, in addition to the embeddings of the categorical columns.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        self.machine = FactorizationMachine(schema, config.embedding_dim, sparse=sparse, placement=placement)
        self.tower = Tower.of(config, self.machine.vectors.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights, vectors = self.machine.look_up(batch)
        dense = numbers(batch, self.numeric)
        logits = self.machine(weights, vectors, dense) + self.tower([*vectors.values()], dense)
        return logits, [*weights.values(), *vectors.values()]
