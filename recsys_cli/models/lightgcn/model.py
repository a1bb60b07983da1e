"""LightGCN."""

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
    """LightGCN: a vector is the mean over propagation layers 0 to L of its node; only layer 0 has parameters.

    He et al., "LightGCN: Simplifying and powering graph convolution network for recommendation", 2020. Every training
    step propagates all embeddings, so their gradients are dense. The graph has the positives of the context.
    """

    dense_gradients = True

    def __init__(self, config: Config, schema: Schema, *, sparse: bool = False) -> None:
        if sparse:
            raise ConfigError(
                "lightgcn propagates all embeddings in every step, so gradients of its tables are dense",
                hint="set train.sparse_embeddings=false",
            )
        super().__init__(schema, NegativeSampling(config, config.loss))
        self.config = config
        columns = [self.user, self.item]
        self.embeddings = Embeddings(columns, {column.name: config.embedding_dim for column in columns})
        self._graph: Graph | None = None
        self._propagated: tuple[object, tuple[Tensor, Tensor]] | None = None

    def set_context(self, context: TrainingContext) -> None:
        """Set the context; the graph is built at first use."""
        super().set_context(context)
        self._graph = self._propagated = None

    def encode(self, users: Tensor, items: Tensor) -> tuple[Encoded, Encoded]:
        """Return propagated vectors, and the embeddings of layer 0."""
        of_users, of_items = self._tables()
        all_users, all_items = self._vectors(of_users, of_items)
        # F.embedding equals indexing, with a faster backward pass.
        return (
            Encoded(F.embedding(users, all_users), F.embedding(users, of_users)),
            Encoded(F.embedding(items, all_items), F.embedding(items, of_items)),
        )

    def _tables(self) -> tuple[Tensor, Tensor]:
        """Return both tables; the padding row gets no gradient, as in a lookup."""
        user, item = (self.embeddings.table(column.name) for column in (self.user, self.item))
        if not torch.is_grad_enabled():
            return user, item
        first = PADDING + 1
        return torch.cat([user[:first].detach(), user[first:]]), torch.cat([item[:first].detach(), item[first:]])

    def _vectors(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Propagate all embeddings; cached without gradients, because a ranking calls this once per block of users."""
        if torch.is_grad_enabled():
            self._propagated = None  # the next training step may use a fused optimizer, invisible to `_version`
            return self.graph.propagate(users, items, layers=self.config.num_layers)
        state = [(one.data_ptr(), one._version) for one in (users, items)]
        if self._propagated is None or self._propagated[0] != state:
            self._propagated = state, self.graph.propagate(users, items, layers=self.config.num_layers)
        return self._propagated[1]

    @property
    def graph(self) -> Graph:
        """Graph of positives, built once per context."""
        if self._graph is None:
            interactions = self.context.interactions()
            self._graph = Graph.of(
                InteractionMatrix.of(interactions, self.user, self.item, positive_only=True, device=self.device)
            )
        return self._graph
