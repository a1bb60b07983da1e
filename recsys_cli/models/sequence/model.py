"""Base of sequence models: user histories, tied item embeddings, sampled softmax."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.embedding import embed
from recsys_cli.models.model import Model, TrainingContext, pair_ids
from recsys_cli.models.sequence.histories import Histories, Windows, first_positions
from recsys_cli.models.sequence.negatives import NegativeSampler, sampled_softmax
from recsys_cli.models.sequence.options import SequenceOptions

_BLOCK = 1 << 16
"""Items per block in scoring; users come in blocks, so that memory does not grow with their number."""


class SequenceModel(Model):
    """A model of chronological user histories, with one embedding table for input and output.

    By default the target at each position is the next item, so `states` has to be causal. For another training task a
    model overrides `window`, `targets_of`, `predict`, `false_negatives` and `encode`.

    A user's vector follows from the history of the context; a longer one needs no retraining. A user without a history
    has a vector of zeros. The placement `sharded` is a `ConfigError`.
    """

    rows = "users"
    scoring = "dot_product"
    folds_in = True

    config: SequenceOptions
    histories: Histories
    negatives: NegativeSampler

    def __init__(
        self, config: SequenceOptions, schema: Schema, *, sparse: bool = False, placement: Placement = "device"
    ) -> None:
        super().__init__()
        if placement == "sharded":
            raise ConfigError(
                "model.embedding.placement is sharded, but sequence models support only device and host",
                hint="set model.embedding.placement=host, or remove it",
            )
        self.length = config.max_seq_len
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.items = embed([self.item], {self.item.name: config.embedding_dim}, sparse=sparse, placement=placement)

    @abstractmethod
    def states(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return the state of each sequence after each of its items, shape (B, L, D).

        Item vectors, shape (B, L, D), are zero at padding. With counts of items, shape (B,), states after the last item
        are ignored. An empty sequence has its state at the first position.
        """

    @property
    def window(self) -> int:
        """Items per user in a training step: the input plus one, as the last item is a target only."""
        return self.length + 1

    def targets_of(self, items: float) -> float:
        """Return the mean number of targets in a window of `items` items: all but the first."""
        return items - 1

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Choose targets and predict them: each item but the first, from those before it.

        Args:
            windows: Items of B users, shape (B, W) with W up to `window`.
            vectors: Item vectors, shape (B, W, D).

        Returns:
            The mask of P targets in the windows, bool, shape (B, W); and the prediction of each target in order, shape (P, D).
            Its dot product with an item vector is the item's score.
        """
        targets = windows.mask
        targets[:, 0] = False
        states = self.states(vectors[:, :-1], (windows.counts - 1).clamp(min=0))
        return targets, states[targets[:, 1:]]

    def false_negatives(self, windows: Windows, targets: Tensor, negatives: Tensor) -> Tensor:
        """Return the mask, shape (P, N), of false negatives of P targets: the target itself and the items of its input sequence.

        Evaluation filters seen items, so training to rank them low is wasted: a small model then ranks low all items
        similar to the seen ones.
        """
        rows, positions = targets.nonzero(as_tuple=True)
        return first_positions(windows.items, negatives)[rows] <= positions.unsqueeze(1)

    def encode(self, users: Tensor) -> Tensor:
        """Return the vectors of B users, shape (B, D): the states after their latest items."""
        windows = self.histories.last(users, self.length)
        vectors = self.item_vectors(windows.items.flatten()).view(*windows.items.shape, -1)
        rows = torch.arange(len(users), device=users.device)
        return self.states(vectors, windows.counts)[rows, (windows.counts - 1).clamp(min=0)]

    def set_context(self, context: TrainingContext) -> None:
        """Sort interactions into histories."""
        self.histories = Histories.of(
            context.interactions(),
            num_users=int(self.user.cardinality or 0),
            positive_only=self.config.positive_only,
            device=self.device,
        )
        counts = torch.bincount(self.histories.items, minlength=int(self.item.cardinality or 0))
        self.negatives = NegativeSampler(
            counts, number=self.config.num_negatives, power=self.config.negative_sampling_power
        )
        self._targets = max(self.targets_of(self.histories.mean_count(self.window)), 1.0)

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over users of weight * the sum of cross-entropies of a user's targets / their mean number.

        The constant divisor makes all targets count alike and lets parts of a batch add up.
        """
        del scores
        users = batch.features[self.user.name]
        assert isinstance(users, Tensor)
        windows = self.histories.random_windows(users, self.window)
        negatives, log_expected = self.negatives.sample()
        vectors = self.item_vectors(torch.cat([windows.items.flatten(), negatives]))  # one lookup: one table gradient
        candidates = vectors[-len(negatives) :]
        vectors = vectors[: -len(negatives)].view(*windows.items.shape, -1)
        targets, predictions = self.predict(windows, vectors)
        positive = (predictions * vectors[targets]).sum(dim=1)
        masked = self.false_negatives(windows, targets, negatives)
        losses = sampled_softmax(positive, predictions @ candidates.T, log_expected, masked)
        if batch.weight is not None:
            losses = losses * batch.weight.unsqueeze(1).expand_as(targets)[targets]
        return losses.sum() / (self._targets * batch.num_rows)

    def score(self, batch: Batch) -> Tensor:
        """Return the dot products of the rows' users and items, shape (B,); each distinct user is encoded once."""
        users, items = pair_ids(batch, self.user, self.item)
        distinct, index = torch.unique(users, return_inverse=True)
        return (self.user_vectors(distinct)[index] * self.item_vectors(items)).sum(dim=1)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return user vectors after the whole history, shape (U, D)."""
        blocks = users.split(max(1, _BLOCK // self.length))
        vectors = torch.cat([self.encode(block) for block in blocks]).float()
        offsets, users = self.histories.offsets, users.long()
        return vectors * (offsets[users + 1] > offsets[users]).unsqueeze(1)

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return item vectors, shape (I, D)."""
        batch = Batch({self.item.name: items}, {})
        return self.items.lookups(batch)[self.item.name].spread()
