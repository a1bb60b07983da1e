"""The kind of sequence models: item histories, tied item embeddings, sampled softmax of targets, and scores by user."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.embedding import embed
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.sequence.histories import Histories, Windows, first_places
from recsys_cli.models.sequence.negatives import Negatives, sampled_softmax
from recsys_cli.models.sequence.options import SequenceOptions

_BLOCK = 1 << 16
"""Items read at once while scoring: users come in blocks, so that memory does not grow with their number."""


class SequenceModel(Model):
    """A model of user histories in the order of time; one embedding table serves input and output.

    By default the target at each position is the next item, so `states` has to be causal. For another training task a model
    overrides `window`, `targets_of`, `predict`, `ruled_out` and `encode`.

    A user's vector follows from the history of the context, so it needs no retraining for a longer one. A user without a
    history has a vector of zeros: all items score the same.

    Args:
        config: Its options.
        schema: Names the user and the item column.
        sparse: Whether the item table has sparse gradients.
        placement: Where the table is kept.

    Raises:
        ConfigError: The placement is `sharded`, which works for interactions only.
    """

    rows = "users"
    scoring = "dot_product"
    folds_in = True

    config: SequenceOptions
    histories: Histories
    negatives: Negatives

    def __init__(
        self, config: SequenceOptions, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__()
        if placement == "sharded":
            raise ConfigError(
                "model.embedding.placement is sharded, and a model of sequences has its items in one place",
                hint="model.embedding.placement=host, or leave it out",
            )
        self.length = config.max_seq_len
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.items = embed([self.item], {self.item.name: config.embedding_dim}, sparse=sparse, placement=placement)

    @abstractmethod
    def states(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return the state of each sequence after each of its items.

        Args:
            vectors: Item vectors, shape (B, L, D), zero at padding.
            counts: Number of items, shape (B,); states after the last item are ignored.

        Returns:
            Shape (B, L, D); the first state is that of an empty sequence where there are no items.
        """

    @property
    def window(self) -> int:
        """Items of a user per training step: one more than the input, as the last item is a target only."""
        return self.length + 1

    def targets_of(self, items: float) -> float:
        """Return the mean number of targets in a window of so many items: each but the first."""
        return items - 1

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Choose targets and predict them: each item but the first, from those before it.

        Args:
            windows: Items of B users, shape (B, W) with W up to `window`.
            vectors: Their vectors, shape (B, W, D).

        Returns:
            The mask of P targets in the windows, bool, shape (B, W); and for each target, in order, the vector whose product
            with an item vector is that item's score, shape (P, D).
        """
        asked = windows.there
        asked[:, 0] = False
        states = self.states(vectors[:, :-1], (windows.counts - 1).clamp(min=0))
        return asked, states[asked[:, 1:]]

    def ruled_out(self, windows: Windows, asked: Tensor, drawn: Tensor) -> Tensor:
        """Return the mask of false negatives: the target itself and the items of its input sequence.

        Evaluation does not rank seen items, so nothing is spent on learning to rank them low. Where users see a good part of
        the catalog once, "not again" is most of the signal; a model of few dimensions that learns it ranks low all items
        similar to those seen.

        Args:
            windows: As for `predict`.
            asked: Mask of the P targets, from `predict`.
            drawn: Sampled items, shape (N,).

        Returns:
            Bool, shape (P, N).
        """
        rows, places = asked.nonzero(as_tuple=True)
        return first_places(windows.items, drawn)[rows] <= places.unsqueeze(1)

    def encode(self, users: Tensor) -> Tensor:
        """Return the vectors of B users, shape (B, D): the states after their latest items."""
        windows = self.histories.last(users, self.length)
        vectors = self.item_vectors(windows.items.flatten()).view(*windows.items.shape, -1)
        rows = torch.arange(len(users), device=users.device)
        return self.states(vectors, windows.counts)[rows, (windows.counts - 1).clamp(min=0)]

    def set_context(self, context: TrainingContext) -> None:
        """Sort interactions into histories.

        Raises:
            ConfigError: The data has no time.
        """
        self.histories = Histories.of(
            context.interactions(),
            num_users=int(self.user.cardinality or 0),
            positive_only=self.config.positive_only,
            device=self.device,
        )
        counts = torch.bincount(self.histories.items, minlength=int(self.item.cardinality or 0))
        self.negatives = Negatives(counts, number=self.config.num_negatives, power=self.config.negative_sampling_power)
        self._targets = max(self.targets_of(self.histories.mean_count(self.window)), 1.0)

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over users of weight * the cross-entropy of what came at the places that are to be told.

        A user's places are added up and divided by how many a user has in the mean. So all places count alike, it is about the
        cross-entropy of one place, and parts of a batch add up.
        """
        del scores
        users = batch.features[self.user.name]
        assert isinstance(users, Tensor)
        windows = self.histories.anywhere(users, self.window)
        drawn, log_expected = self.negatives.draw()
        vectors = self.item_vectors(torch.cat([windows.items.flatten(), drawn]))  # together: one gradient of the table
        candidates = vectors[-len(drawn) :]
        vectors = vectors[: -len(drawn)].view(*windows.items.shape, -1)
        asked, hidden = self.predict(windows, vectors)
        positive = (hidden * vectors[asked]).sum(dim=1)
        ruled_out = self.ruled_out(windows, asked, drawn)
        losses = sampled_softmax(positive, hidden @ candidates.T, log_expected, ruled_out)
        if batch.weight is not None:
            losses = losses * batch.weight.unsqueeze(1).expand_as(asked)[asked]
        return losses.sum() / (self._targets * batch.num_rows)

    def score(self, batch: Batch) -> Tensor:
        """Return the products of the rows' users and items, shape (B,); each user's history is read once."""
        users, items = batch.features[self.user.name], batch.features[self.item.name]
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        distinct, places = torch.unique(users, return_inverse=True)
        return (self.user_vectors(distinct)[places] * self.item_vectors(items)).sum(dim=1)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return the users' vectors after all that they met, shape (U, D)."""
        blocks = users.split(max(1, _BLOCK // self.length))
        vectors = torch.cat([self.encode(block) for block in blocks]).float()
        offsets, users = self.histories.offsets, users.long()
        return vectors * (offsets[users + 1] > offsets[users]).unsqueeze(1)

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return the items' vectors, shape (I, D)."""
        batch = Batch({self.item.name: items}, {})
        return self.items.lookups(batch)[self.item.name].spread()
