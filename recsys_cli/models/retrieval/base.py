"""A model with a vector for each user and each item: which rows it learns from, and what it draws to compare them with."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.model import Known, Trained, Vectors
from recsys_cli.models.retrieval.catalogue import POSITIVE, Catalogue


@dataclass(frozen=True)
class Positives:
    """The rows of a batch that are learnt from.

    Attributes:
        users: Encoded, int64, shape (P,).
        items: Encoded, int64, shape (P,).
        weight: Label times weight of the row, float32, shape (P,).
        num_rows: B, all rows of the batch, which the sum of the losses is divided by.
    """

    users: Tensor
    items: Tensor
    weight: Tensor
    num_rows: int

    def mean(self, losses: Tensor) -> Tensor:
        """Return the sum of weight * loss over the number of all rows, float32, from a loss for each positive; 0 of no rows."""
        return (losses.float() * self.weight).sum() / max(self.num_rows, 1)


class Retrieval(Trained, Vectors):
    """Learns from rows whose label is above 0.5; all others add nothing to the loss but are counted in its mean.

    Args:
        schema: Has one user, one item, and a label.

    Raises:
        ConfigError: It has not, or the label is a number in units of its own.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        if (label := schema.label).is_regression:
            raise ConfigError(
                f"features.label: the model learns who chose what, from rows with label 1, and the label {label.name} is a number",
                hint="make one of it in features.ops, such as {op: LambdaOp, expression: "
                f'"{label.name} > ...", output: chosen, dtype: int8}}; or train a model that predicts numbers: model.name=fm, mlp, '
                "lightgbm, or another ranking model",
            )
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.label = schema.label.name
        self._known: Known | None = None
        self._catalogue: Catalogue | None = None

    def begin(self, known: Known) -> None:
        """Take in what is known; interactions are read when they are first needed, which for scores alone is never."""
        self._known, self._catalogue = known, None

    @property
    def known(self) -> Known:
        """What `begin` was told."""
        assert self._known is not None, "a retrieval model begins before it learns: model.begin(known)"
        return self._known

    @property
    def catalogue(self) -> Catalogue:
        """What negatives are drawn from, made once."""
        if self._catalogue is None:
            self._catalogue = Catalogue(self.known.interactions(), self.user, self.item, device=self.device)
        return self._catalogue

    def positives(self, batch: Batch) -> Positives:
        """Return the rows of a batch that are learnt from."""
        label = batch.labels[self.label]
        rows = (label > POSITIVE).nonzero().flatten()
        weight = label if batch.weight is None else label * batch.weight
        users, items = self.ids(batch)
        return Positives(users[rows], items[rows], weight[rows].float(), batch.num_rows)

    def ids(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the users and the items of a batch's rows, int64, shape (B,)."""
        users, items = batch.features[self.user.name], batch.features[self.item.name]
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        return users.long(), items.long()

    @abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Return the product of the two vectors of each row, shape (B,)."""
