"""The network of the Merlin notebook."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Schema
from recsys_cli.models.batch_norm import BatchNorm
from recsys_cli.models.dense import ConcatLinear
from recsys_cli.models.embedding import dims_of, embed
from recsys_cli.models.mlp.config import Config
from recsys_cli.models.pointwise import Pointwise


class Model(Pointwise):
    """Embeddings and numbers, concatenated in the order of their names, through dense layers to one logit for each label.

    Each dense layer is followed by ReLU, BatchNorm and dropout.

    Raises:
        ConfigError: The schema has no feature, a list of numbers, or lacks a column of `embedding_dim`.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(schema, config.label_weights)
        self.config = config
        self.numeric = tuple(sorted(column.name for column in schema.numeric))
        lists = [column.name for column in schema.numeric if column.ragged]
        if lists:
            raise ConfigError(
                f"mlp takes no lists of numbers, and {', '.join(lists)} has them",
                hint="categorify them, drop them, or weight a list by them with features.list_weights",
            )
        widths_of = dims_of(schema.categorical, config.embedding_dim)
        self.embeddings = embed(schema.categorical, widths_of, sparse=sparse, placement=placement)
        dims = list(self.embeddings.dims.values())
        if not dims and not self.numeric:
            raise ConfigError("the prepared data has no feature column for the model to look at")
        first, *widths = (*config.hidden, len(self.labels))
        self.first = ConcatLinear(dims, len(self.numeric), first)
        self.rest = nn.Sequential(*_after(first, widths, config.dropout)) if widths else nn.Identity()

    def logits(self, batch: Batch) -> Tensor:
        """Return a logit for each label; shape (B, T)."""
        lookups = list(self.embeddings.lookups(batch).values())
        dropout = self.config.embedding_dropout if self.training else 0.0
        logits: Tensor = self.rest(self.first(lookups, self._numbers(batch), dropout=dropout))
        return logits.float()

    def _numbers(self, batch: Batch) -> Tensor:
        columns = [batch.features[name] for name in self.numeric]
        dense = [column.float() for column in columns if not isinstance(column, Ragged)]
        if dense:
            return torch.stack(dense, dim=1)
        return self.first.linear.weight.new_empty((batch.num_rows, 0))


def _after(width: int, widths: list[int], dropout: float) -> list[nn.Module]:
    """Return what follows a dense layer of a width: its non-linearity, and the layers after it."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *widths], widths, strict=False):
        layers += [nn.ReLU(), BatchNorm(before), *([nn.Dropout(dropout)] if dropout else []), nn.Linear(before, after)]
    return layers
