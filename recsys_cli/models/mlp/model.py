"""MLP of the Merlin notebook."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.mlp.config import Config
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tower import Tower


class Model(RankingModel):
    """Concatenated embeddings and numeric features, in the order of their names, through an MLP to one logit per label."""

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        widths_of = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, widths_of, sparse=sparse, placement=placement)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        lookups = list(self.embeddings.lookups(batch).values())
        return self.tower(lookups, numbers(batch, self.numeric)), lookups
