"""User and item embeddings, alone (mf) or propagated over the graph of positives (lightgcn)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import PADDING, Schema
from recsys_cli.models.configs.retrieval import LightGCNConfig, MFConfig
from recsys_cli.models.embedding import embed
from recsys_cli.models.interaction_matrix import InteractionMatrix, transpose
from recsys_cli.models.item_to_item import add_rows
from recsys_cli.models.model import TrainingContext
from recsys_cli.models.retrieval.model import RetrievalModel
from recsys_cli.models.retrieval.negative_sampling import Encoded, NegativeSampling


class MF(RetrievalModel):
    """score(u, i) = p_u · q_i + b_i, from user and item ids only.

    The bias is the last element of an item's embedding, multiplied by a constant 1 in the user's vector.
    """

    def __init__(self, config: MFConfig, schema: Schema) -> None:
        super().__init__(schema, NegativeSampling(config, config.loss))
        self.config = config
        dims = {self.user.name: config.embedding_dim, self.item.name: config.embedding_dim + 1}
        self.embeddings = embed([self.user, self.item], dims)

    def encode(self, users: Tensor, items: Tensor) -> tuple[Encoded, Encoded]:
        """Return the embeddings, with a 1 appended to the users'."""
        rows = self.embeddings(Batch({self.user.name: users, self.item.name: items}, {}))
        of_users: Tensor = rows[self.user.name]
        of_items: Tensor = rows[self.item.name]
        return Encoded(F.pad(of_users, (0, 1), value=1.0), of_users), Encoded(of_items, of_items)


@dataclass(frozen=True)
class Graph:
    """Edges between users and items with weight 1 / sqrt(degree of the user * degree of the item).

    Attributes:
        to_users: Items of each user, with weights.
        to_items: Users of each item: the same edges.
    """

    to_users: Ragged
    to_items: Ragged

    @classmethod
    def of(cls, positives: InteractionMatrix) -> Graph:
        """Build the graph of positive interactions."""
        degrees = positives.offsets.diff()
        weights = (degrees[positives.users] * positives.counts[positives.items]).float().rsqrt()
        to_users = Ragged(positives.items, positives.offsets, weights)
        return cls(to_users, transpose(to_users, positives.num_items))

    def layers(self, users: Tensor, items: Tensor, number: int, *, noise: float = 0.0) -> list[tuple[Tensor, Tensor]]:
        """Return propagation layers 0, …, `number`; shapes (num_users, D) and (num_items, D).

        Noise of a given length, random in the orthant of each vector, is added to each layer but 0 (XSimGCL, eq. 3 and 4).
        """
        layers = [(users, items)]
        for _ in range(number):
            users, items = (
                _propagate(items, self.to_users, self.to_items),
                _propagate(users, self.to_items, self.to_users),
            )
            if noise:
                users, items = _noisy(users, noise), _noisy(items, noise)
            layers.append((users, items))
        return layers

    def propagate(self, users: Tensor, items: Tensor, *, layers: int) -> tuple[Tensor, Tensor]:
        """Return the means over propagation layers 0, …, `layers`; shapes (num_users, D) and (num_items, D)."""
        return _means(self.layers(users, items, layers))


def _means(layers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    users, items = zip(*layers, strict=True)
    return sum(users[1:], users[0]) / len(layers), sum(items[1:], items[0]) / len(layers)


def _noisy(vectors: Tensor, length: float) -> Tensor:
    return vectors + vectors.sign() * F.normalize(torch.rand_like(vectors), dim=1) * length


def info_nce(vectors: Tensor, others: Tensor, ids: Tensor, *, temperature: float) -> Tensor:
    """Return -log softmax of each row's cosine similarity of both views of its id, among the distinct ids; shape (P,)."""
    distinct, row = ids.unique(return_inverse=True)
    first, second = (F.normalize(F.embedding(distinct, view).float(), dim=1) for view in (vectors, others))
    losses = F.cross_entropy(
        first @ second.T / temperature, torch.arange(len(distinct), device=ids.device), reduction="none"
    )
    return losses[row]


def _propagate(rows: Tensor, edges: Ragged, back: Ragged) -> Tensor:
    summed: Tensor = _Propagate.apply(rows, edges, back)
    return summed


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, edges: Ragged, back: Ragged) -> Tensor:
        ctx.back = back
        return add_rows(rows, edges)  # a stable kernel on all cores, unlike those of sparse tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return add_rows(gradients[0].contiguous(), ctx.back), None, None


class LightGCN(RetrievalModel):
    """LightGCN: a vector is the mean over propagation layers 0 to L of its node; only layer 0 has parameters.

    He et al., "LightGCN: Simplifying and powering graph convolution network for recommendation", 2020. Every training
    step propagates all embeddings, so their gradients are dense. The graph has the positives of the context.
    """

    dense_gradients = True
    placements = ("device",)

    def __init__(self, config: LightGCNConfig, schema: Schema) -> None:
        super().__init__(schema, NegativeSampling(config, config.loss))
        self.config = config
        self.embeddings = embed([self.user, self.item], config.embedding_dim)
        self._graph: Graph | None = None
        self._propagated: tuple[object, tuple[Tensor, Tensor]] | None = None
        self._views: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

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

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Add the contrastive loss of the positives while training, with the vectors of the same propagation."""
        loss, options, views = super().loss(batch, scores=scores), self.config.contrastive, self._views
        if options is None or views is None:
            return loss
        self._views, positives = None, self.positives(batch)
        of_users, of_items = (
            info_nce(first, second, ids, temperature=options.temperature)
            for first, second, ids in zip(*views, (positives.users, positives.items), strict=True)
        )
        return loss + options.weight * positives.mean(of_users + of_items)

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
            contrastive = self.config.contrastive if self.training else None
            noise = 0.0 if contrastive is None else contrastive.noise
            layers = self.graph.layers(users, items, self.config.num_layers, noise=noise)
            means = _means(layers)
            if contrastive is not None:
                self._views = means, layers[contrastive.layer]
            return means
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
