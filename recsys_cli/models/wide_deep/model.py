"""Wide & Deep (Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.embedding import Lookup, dims_of, embed
from recsys_cli.models.ranking.factorization import FirstOrder
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.ranking.numbers import numbers, numeric_columns
from recsys_cli.models.ranking.tower import Tower
from recsys_cli.models.wide_deep.config import Config
from recsys_cli.registry import suggest


class Model(RankingModel):
    """The logits are the sum of a jointly trained linear model and MLP (eq. 3)."""

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        wide, deep = _part(schema, config.wide, option="wide"), _part(schema, config.deep, option="deep")
        self.wide_numeric, self.deep_numeric = (numeric_columns(part.features) for part in (wide, deep))
        self.wide = FirstOrder(wide, sparse=sparse, placement=placement)
        widths_of = dims_of(deep.categorical, config.embedding_dim)
        self.embeddings = embed(deep.categorical, widths_of, sparse=sparse, placement=placement)
        self.tower = Tower.of(config, self.embeddings.dims, len(self.deep_numeric), len(self.labels))

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and all lookups."""
        weights = self.wide.weights.lookups(batch)
        embeddings = self.embeddings.lookups(batch, like=weights)
        wide = self.wide(weights, numbers(batch, self.wide_numeric))
        deep = self.tower([*embeddings.values()], numbers(batch, self.deep_numeric))
        return wide + deep, [*weights.values(), *embeddings.values()]


def _part(schema: Schema, names: tuple[str, ...] | None, *, option: str) -> Schema:
    features = [column.name for column in schema.features]
    for name in names or ():
        if name not in features:
            raise ConfigError(
                f"model.{option}: no feature column {name!r}{suggest(name, features)}",
                hint=f"the features are {', '.join(features)}",
            )
    selected = features if names is None else names
    return Schema(columns=schema.select(lambda column: column.name in selected or column.role is Role.LABEL))
