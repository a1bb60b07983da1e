"""LightGCN: vectors that are smoothed over the graph of who likes what."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.embedding import Embeddings
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.lightgcn.config import Config
from recsys_cli.models.lightgcn.graph import Graph
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.retrieval.model import RetrievalModel
from recsys_cli.models.retrieval.negative_sampling import Encoded, NegativeSampling


class Model(RetrievalModel):
    """He et al., "LightGCN: Simplifying and powering graph convolution network for recommendation", 2020.

    A vector is the mean of what 0, 1, …, `num_layers` steps along the graph bring to its node; only the vectors at step 0 are
    learnt. Every step of training looks at all of them, so their gradients are dense. The graph is that of the
    positives of the context: those of train, and at a test those of valid too.

    Raises:
        ConfigError: Sparse gradients are asked for, or the schema has not one user, one item, and a label.
    """

    dense_gradients = True

    def __init__(self, config: Config, schema: Schema, *, sparse: bool = False) -> None:
        if sparse:
            raise ConfigError(
                "lightgcn carries every vector along the graph in every step, so gradients of its tables are dense",
                hint="train.sparse_embeddings=false",
            )
        super().__init__(schema, NegativeSampling(config, config.loss))
        self.config = config
        columns = [self.user, self.item]
        self.embeddings = Embeddings(columns, {column.name: config.embedding_dim for column in columns})
        self._graph: Graph | None = None
        self._smoothed: tuple[object, tuple[Tensor, Tensor]] | None = None

    def set_context(self, context: TrainingContext) -> None:
        """Take the context; the graph is built from its interactions at first use."""
        super().set_context(context)
        self._graph = self._smoothed = None

    def encode(self, users: Tensor, items: Tensor) -> tuple[Encoded, Encoded]:
        """Return smoothed vectors, and the embedding rows at step 0."""
        of_users, of_items = self._tables()
        all_users, all_items = self._vectors(of_users, of_items)
        # F.embedding takes rows as indexing does, with a faster way back.
        return (
            Encoded(F.embedding(users, all_users), F.embedding(users, of_users)),
            Encoded(F.embedding(items, all_items), F.embedding(items, of_items)),
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
            return self.graph.smoothed(users, items, layers=self.config.num_layers)
        state = [(one.data_ptr(), one._version) for one in (users, items)]
        if self._smoothed is None or self._smoothed[0] != state:
            self._smoothed = state, self.graph.smoothed(users, items, layers=self.config.num_layers)
        return self._smoothed[1]

    @property
    def graph(self) -> Graph:
        """The graph of positives, built once."""
        if self._graph is None:
            interactions = self.context.interactions()
            self._graph = Graph.of(
                InteractionMatrix.of(interactions, self.user, self.item, positive_only=True, device=self.device)
            )
        return self._graph
