"""Item vectors from ids and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.ranking.numbers import NumericColumns, numbers, numeric_columns
from recsys_cli.registry import suggest


def item_columns(schema: Schema, item: Column, wanted: Literal["all"] | Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns of `model.item_features`, in the item's dimension table.

    Raises:
        ConfigError: The table has no such column, or no column at all.
    """
    if not wanted:
        return ()
    columns = {column.name: column for column in schema.in_table(item.name) if column.role is Role.FEATURE}
    if not columns:
        raise ConfigError(
            f"model.item_features: the prepared data has no features of {item.name} in a table of their own",
            hint=f"add {{op: JoinExternal, table: …, on: {item.name}, columns: […]}} to features.ops with etl.layout=star and run "
            "recsys etl, or remove model.item_features",
        )
    for name in columns if wanted == "all" else wanted:
        if name not in columns:
            raise ConfigError(
                f"model.item_features: no feature {name!r} of {item.name}{suggest(name, list(columns))}",
                hint=f"the features of {item.name} are {', '.join(columns)}",
            )
    return tuple(columns.values()) if wanted == "all" else tuple(columns[name] for name in wanted)


class ItemFeatures(nn.Module):
    """Item vectors v = e + Σ_c mean_{k in c} E_c[k] + W x: the embedding of the id plus those of its features.

    The sum of Kula, "Metadata embeddings for user and item cold-start recommendations" (2015), as input and as candidate
    of a sequence model; SASRec with features in the input alone is SASRecF in the comparison of Zhou et al., "S3-Rec"
    (2020). Categories c have a table each, of the width of the item's; x are numbers and given vectors, each vector
    divided by its length. A weighted list is a weighted sum, an empty list and a missing vector are zero.

    Args:
        columns: Features of items.
        dim: Width of the vectors.
    """

    def __init__(self, columns: Sequence[Column], dim: int) -> None:
        super().__init__()
        self.categorical = tuple(column for column in columns if column.kind is Kind.CATEGORICAL)
        self._numeric = numeric_columns(columns)
        self.projection: nn.Linear | None = None
        if len(self._numeric):
            self.projection = nn.Linear(len(self._numeric), dim, bias=False)
            nn.init.normal_(self.projection.weight, std=INITIAL_STD)

    def forward(self, vectors: Tensor, features: Mapping[str, Feature], lookups: Mapping[str, Lookup]) -> Tensor:
        """Return item vectors, shape (I, D), from the embeddings of the ids, shape (I, D)."""
        for column in self.categorical:
            vectors = vectors + _mean(lookups[column.name].spread(), features[column.name])
        if self.projection is not None:
            vectors = vectors + self.projection(self._numbers(features))
        return vectors

    def _numbers(self, features: Mapping[str, Feature]) -> Tensor:
        batch = Batch(features, {})
        widths, filled = self._numeric.widths, self._numeric.filled
        parts = ((numbers(batch, NumericColumns({name: width}, filled)), width) for name, width in widths.items())
        return torch.cat([F.normalize(part, dim=1) if width > 1 else part for part, width in parts], dim=1)


def _mean(sums: Tensor, feature: Feature) -> Tensor:
    if not isinstance(feature, Ragged) or feature.weights is not None:
        return sums
    return sums / feature.offsets.diff().clamp(min=1).unsqueeze(1)
