"""LightGCN: vectors that are smoothed over the graph of who likes what."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.history import History
from recsys_cli.models.lightgcn.config import Config
from recsys_cli.models.lightgcn.graph import Graph
from recsys_cli.models.model import Known
from recsys_cli.models.retrieval.comparing import ComparingModel, Side


class Model(ComparingModel):
    """He et al., "LightGCN: Simplifying and powering graph convolution network for recommendation", 2020.

    A vector is the mean of what 0, 1, …, `layers` steps along the graph bring to its node; only the vectors at step 0 are
    learnt. Every step of training looks at all of them, so their gradients are dense. The graph is that of the positives
    that are known: those of train, and at a test those of valid too.

    Raises:
        ConfigError: Sparse gradients are asked for, or the schema has not one user, one item, and a label.
    """

    dense = True

    def __init__(self, config: Config, schema: Schema, *, sparse: bool = False) -> None:
        if sparse:
            raise ConfigError(
                "lightgcn carries every vector along the graph in every step, so gradients of its tables are dense",
                hint="train.sparse=false",
            )
        super().__init__(config, config.loss, schema)
        self.config = config
        columns = [self.user, self.item]
        self.embeddings = Embeddings(columns, {column.name: config.dim for column in columns})
        self._graph: Graph | None = None
        self._smoothed: tuple[object, tuple[Tensor, Tensor]] | None = None

    def begin(self, known: Known) -> None:
        """Take in what is known; the graph is made of it when it is first needed."""
        super().begin(known)
        self._graph = self._smoothed = None

    def sides(self, users: Tensor, items: Tensor) -> tuple[Side, Side]:
        """Return smoothed vectors, and the rows of the tables that they begin with."""
        of_users, of_items = self._tables()
        all_users, all_items = self._vectors(of_users, of_items)
        # F.embedding takes rows as indexing does, with a faster way back.
        return (
            Side(F.embedding(users, all_users), F.embedding(users, of_users)),
            Side(F.embedding(items, all_items), F.embedding(items, of_items)),
        )

    def _tables(self) -> tuple[Tensor, Tensor]:
        """Return all rows; that of padding is a constant, as it is where rows are looked up."""
        user, item = (self.embeddings.table(column.name) for column in (self.user, self.item))
        if not torch.is_grad_enabled():
            return user, item
        first = PADDING + 1
        return torch.cat([user[:first].detach(), user[first:]]), torch.cat([item[:first].detach(), item[first:]])

    def _vectors(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Smooth all vectors; without gradients once for the same weights, as a ranking asks for them block by block."""
        if torch.is_grad_enabled():
            self._smoothed = None  # a step of training follows, and a fused optimizer leaves no trace in `_version`
            return self.graph.smoothed(users, items, layers=self.config.layers)
        state = [(one.data_ptr(), one._version) for one in (users, items)]
        if self._smoothed is None or self._smoothed[0] != state:
            self._smoothed = state, self.graph.smoothed(users, items, layers=self.config.layers)
        return self._smoothed[1]

    @property
    def graph(self) -> Graph:
        """Who likes what, made once."""
        if self._graph is None:
            known = self.known.interactions()
            self._graph = Graph.of(History.of(known, self.user, self.item, positive_only=True, device=self.device))
        return self._graph
