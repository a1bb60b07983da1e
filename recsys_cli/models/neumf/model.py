"""NeuMF (He et al., "Neural Collaborative Filtering", WWW 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Kind, Role, Schema
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.neumf.config import Config
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import NumericColumns, numbers
from recsys_cli.models.ranking.tower import Tower


class Model(RankingModel):
    """logits = h · [p * q, tower]: products of user and item embeddings, and the last hidden layer of an MLP (eq. 12).

    h is linear, so it is computed in two summands. By default the MLP reads all features, the extension of section 3.1.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        pair = [schema.only(role) for role in (Role.USER, Role.ITEM)]
        for column in pair:
            if column.kind is not Kind.CATEGORICAL or column.ragged:
                raise ConfigError(
                    f"neumf needs categorical user and item columns, and {column.name} is none",
                    hint="add it to a Categorify op in features.ops",
                )
        self.user, self.item = pair
        self.by_content = config.content
        if not config.content:
            self.numeric = NumericColumns()
        columns = schema.categorical if config.content else pair
        self.vectors = embed(pair, {column.name: config.mf_dim for column in pair}, sparse=sparse, placement=placement)
        widths_of = dims_of(columns, config.embedding_dim)
        self.embeddings = embed(columns, widths_of, sparse=sparse, placement=placement)
        self.products = nn.Linear(config.mf_dim, len(self.labels), bias=False)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        vectors = self.vectors.lookups(batch)
        embeddings = self.embeddings.lookups(batch, like=vectors)
        products = self.products(vectors[self.user.name].spread() * vectors[self.item.name].spread())
        deep = self.tower([*embeddings.values()], numbers(batch, self.numeric))
        return products + deep, [*vectors.values(), *embeddings.values()]
