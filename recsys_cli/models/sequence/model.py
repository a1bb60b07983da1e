"""What models of sequences have in common: histories, tied vectors of items, the loss of what comes next, and scoring by users."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.embedding import embed
from recsys_cli.models.model import Known, Trained, Vectors
from recsys_cli.models.sequence.histories import Histories, Windows
from recsys_cli.models.sequence.negatives import Negatives, sampled_softmax
from recsys_cli.models.sequence.options import SequenceOptions

_BLOCK = 1 << 16
"""Items that are read at once while scoring: users are taken in blocks, so that memory does not grow with their number."""


class SequenceModel(Trained, Vectors):
    """A model that reads a user's items in order. One table holds what items are as input and as output.

    The user's vector follows from the history that `begin` has told, so it needs no training to go on from a longer one, and
    a user without a history has a vector of zeros, to which all items are equal.

    Args:
        config: Its options.
        schema: Names the user and the item column.
        sparse: Whether the gradient of the items' table shall be a sparse tensor.
        placement: Where the table is kept.

    Raises:
        ConfigError: The table shall be sharded, which goes by interactions.
    """

    rows: ClassVar[Literal["interactions", "users"]] = "users"
    folds_in: ClassVar[bool] = True

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
        self.length = config.length
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.items = embed([self.item], {self.item.name: config.dim}, sparse=sparse, placement=placement)

    @abstractmethod
    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Choose what is to be told, and tell it.

        Args:
            windows: What B users met, shape (B, W) with W as `window` says.
            vectors: Those items' vectors, shape (B, W, D).

        Returns:
            Which P places of the windows are to be told, bool, shape (B, W); and for each of them, in order, the vector whose
            product with an item's vector is the item's score there, shape (P, D).
        """

    @abstractmethod
    def ruled_out(self, windows: Windows, asked: Tensor, drawn: Tensor) -> Tensor:
        """Return which drawn items are no alternative to the item that came: that item, and those from which it is told.

        A ranking leaves out what a user has met, so nothing has to be learnt of it. Where users meet a good part of the catalogue
        once, "not again" is most of what is to be told of the next item. A model that has to learn that, in a few dimensions,
        learns to rank low whatever is like the items that were met.

        Args:
            windows: As `predict` had them.
            asked: Which P places are to be told, as `predict` has chosen.
            drawn: Encoded items, shape (N,).

        Returns:
            Bool, shape (P, N).
        """

    @abstractmethod
    def encode(self, users: Tensor) -> Tensor:
        """Return the vectors of B users after all that they met, shape (B, D)."""

    @property
    @abstractmethod
    def window(self) -> int:
        """How many items of a user are taken for a step of training."""

    @abstractmethod
    def targets_of(self, items: float) -> float:
        """Return how many places of a window of so many items are to be told in the mean."""

    def begin(self, known: Known) -> None:
        """Sort what is known into histories.

        Raises:
            ConfigError: The data has no time.
        """
        self.histories = Histories.of(
            known.interactions(),
            num_users=int(self.user.cardinality or 0),
            positive_only=self.config.positive_only,
            device=self.device,
        )
        counts = torch.bincount(self.histories.items, minlength=int(self.item.cardinality or 0))
        self.negatives = Negatives(counts, number=self.config.negatives, power=self.config.negatives_power)
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
