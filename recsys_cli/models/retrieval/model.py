"""Base of retrieval models: dot products of user and item vectors, trained on positives and sampled negatives."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import Placement
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.model import Model, TrainingContext, pair_ids
from recsys_cli.models.retrieval.negative_sampling import POSITIVE, Encoded, ItemCatalog, NegativeSampling, Positives


class RetrievalModel(Model):
    """Trains on positives, rows with a label above 0.5 and a weight above 0; others count only in the divisor of the mean loss.

    A model implements `encode`, or overrides its callers: `loss`, `score`, `user_vectors` and `item_vectors`.

    Raises:
        ConfigError: The schema has not one user, one item, and a label, or the label is a regression label.
    """

    scoring = "dot_product"
    placements: ClassVar[tuple[Placement, ...]] = ("device", "host", "sharded")
    loss_options = frozenset({"features.weight"})

    def __init__(self, schema: Schema, objective: NegativeSampling | None = None) -> None:
        super().__init__()
        if (label := schema.label).is_regression:
            raise ConfigError(
                f"features.label: a retrieval model trains on positives, rows with label 1, but {label.name} is a regression label",
                hint="add a binary label in features.ops, such as {op: LambdaOp, expression: "
                f'"{label.name} > ...", output: chosen, dtype: int8}}; or choose a ranking model '
                "(model.name=fm, mlp, lightgbm, ...)",
            )
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.label = schema.label.name
        self.objective = objective
        self._context: TrainingContext | None = None
        self._catalog: ItemCatalog | None = None

    def encode(self, users: Tensor, items: Tensor) -> tuple[Encoded, Encoded]:
        """Return the vectors of users, shape (B,), and items, shape (C,), with gradients."""
        raise NotImplementedError(f"{type(self).__module__} has no encode")

    def set_context(self, context: TrainingContext) -> None:
        """Set the context; interactions are read at first use, and never for scores only."""
        self._context, self._catalog = context, None

    @property
    def context(self) -> TrainingContext:
        """The context of the last `set_context`."""
        assert self._context is not None, (
            "a retrieval model needs its context before training: model.set_context(context)"
        )
        return self._context

    @property
    def catalog(self) -> ItemCatalog:
        """Items for negative sampling, built once per context."""
        if self._catalog is None:
            self._catalog = ItemCatalog(self.context.interactions(), self.user, self.item, device=self.device)
        return self._catalog

    def positives(self, batch: Batch) -> Positives:
        """Return the positive rows of a batch."""
        label = batch.labels[self.label]
        weight = label if batch.weight is None else label * batch.weight
        rows = ((label > POSITIVE) & (weight > 0)).nonzero().flatten()
        users, items = pair_ids(batch, self.user, self.item)
        return Positives(users[rows], items[rows], weight[rows].float(), batch.num_rows)

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over the batch's rows of weight * loss, 0 for rows that are not positive."""
        del scores
        assert self.objective is not None, "a retrieval model needs an objective or a loss of its own"
        return self.objective.loss(self.positives(batch), self.catalog, self.encode, penalize=self.training)

    def score(self, batch: Batch) -> Tensor:
        """Return the dot product of user and item vector of each row, shape (B,)."""
        users, items = self.encode(*pair_ids(batch, self.user, self.item))
        return (users.vectors * items.vectors).sum(dim=1).float()

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return user vectors, shape (U, D)."""
        return self.encode(users, users[:0])[0].vectors

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return item vectors, shape (I, D)."""
        return self.encode(items[:0], items)[1].vectors
