"""DLRM (Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.features.schema import Schema
from recsys_cli.models.dlrm.config import Config
from recsys_cli.models.embedding import Lookup, embed
from recsys_cli.models.ranking.numbers import numbers
from recsys_cli.models.ranking.tabular import Tabular
from recsys_cli.models.ranking.tower import Tower


class Model(Tabular):
    """A bottom tower makes one vector of the numbers; it and the dot products of all pairs of vectors go into the top tower.

    Without numbers their vector is a constant that is learnt, as a tower over no input would give: its products with the
    embeddings are what each id adds by itself, which dot products of ids alone could not tell.

    Raises:
        ConfigError: The schema has no label, no feature, or a list of numbers.
    """

    def __init__(
        self, config: Config, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__(config, schema)
        dim, num_numeric = config.embedding_dim, len(self.numeric)
        widths = {column.name: dim for column in schema.categorical}
        self.embedding_dropout = config.embedding_dropout
        self.embeddings = embed(schema.categorical, widths, sparse=sparse, placement=placement)
        self.bottom = Tower((), num_numeric, (*config.bottom, dim), dropout=config.dropout) if num_numeric else None
        self.constant = None if num_numeric else nn.Parameter(torch.randn(dim) / dim**0.5)
        fields = len(widths) + 1
        inputs = fields * (fields - 1) // 2 + (dim if num_numeric else 0)
        self.top = Tower((), inputs, (*config.hidden, len(self.labels)), dropout=config.dropout)

    def outputs(self, batch: Batch) -> tuple[Tensor, Sequence[Lookup]]:
        """Return the logits, shape (B, T), and the embeddings."""
        lookups = list(self.embeddings.lookups(batch).values())
        spread = [F.dropout(lookup.spread(), self.embedding_dropout, self.training) for lookup in lookups]
        if self.bottom is not None:
            dense = self.bottom((), numbers(batch, self.numeric)).float()
            inputs = torch.cat([dense, pairwise_products([dense, *spread])], dim=1)
        else:
            assert self.constant is not None
            inputs = pairwise_products([self.constant.expand(batch.num_rows, -1), *spread])
        return self.top((), inputs), lookups


def pairwise_products(fields: Sequence[Tensor]) -> Tensor:
    """Return the dot product of each pair of fields once, shape (B, F (F - 1) / 2): of 1 with 0, of 2 with 0, of 2 with 1, ...

    Args:
        fields: F tensors of shape (B, D).
    """
    stacked = torch.stack(list(fields), dim=1)
    first, second = torch.tril_indices(len(fields), len(fields), offset=-1, device=stacked.device)
    return torch.bmm(stacked, stacked.transpose(1, 2))[:, first, second]
