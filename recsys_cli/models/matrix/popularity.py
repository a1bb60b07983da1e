"""Popularity, over all items, among those with a user's favorite values, or after the items of the user's history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.configs.matrix import PopularityConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix, spans
from recsys_cli.models.item_to_item import add_rows, rows_of
from recsys_cli.models.model import ClosedFormModel, Progress, TrainingContext, no_progress, pair_ids

_MAX_ELEMENTS = 1 << 20
"""Maximum elements of user histories per block."""


@dataclass(frozen=True)
class Favorites:
    """Favorite values of all users.

    Attributes:
        of_users: 0 or 1 by encoded user; shape (users, V), float32.
        of_items: Values of each item, 0 or 1; shape (items, V), float32.
    """

    of_users: Tensor
    of_items: Tensor

    @classmethod
    def of(
        cls,
        context: TrainingContext,
        user: Column,
        item: Column,
        values: Column,
        *,
        number: int,
        positive_only: bool,
        device: torch.device,
    ) -> Self:
        """Determine the `number` most frequent values in each user history; ties go to the lower id.

        Raises:
            ConfigError: The column is no item feature.
        """
        of_items = _values_of_items(context, item, values, device)
        matrix = InteractionMatrix.of(context.interactions(), user, item, positive_only=positive_only, device=device)
        of_users = torch.zeros(matrix.num_users, of_items.shape[1], device=device)
        all_users = torch.arange(matrix.num_users, device=device)
        for users in spans(matrix.offsets, max_elements=_MAX_ELEMENTS):
            counts = add_rows(of_items, matrix.of_users(all_users[users]))
            best = counts.sort(dim=1, descending=True, stable=True).indices[:, :number]
            of_users[users] = torch.zeros_like(counts).scatter_(1, best, 1.0) * (counts > 0)
        return cls(of_users, of_items)

    def of_pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the mask of pairs with a favorite value; shape (B,)."""
        return (self.of_users[users] * self.of_items[items]).any(1)

    def of_all(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the mask for each user and item; shape (U, I)."""
        return self.of_users[users] @ self.of_items[items].T > 0


@dataclass(frozen=True)
class OwnItems:
    """Weighted rows of each user and item.

    Attributes:
        pairs: user * items + item, ascending; shape (N,).
        matrix: The pairs as a matrix.
        rows: Score of each pair, at least 1, ordered by its sum of weights; float32, shape (N,).
        whole: Whether the sums are whole numbers, so that less than 1 breaks their ties.
    """

    pairs: Tensor
    matrix: InteractionMatrix
    rows: Tensor
    whole: bool

    @classmethod
    def of(
        cls, rows: Interactions, weights: npt.NDArray[np.float64], user: Column, item: Column, *, device: torch.device
    ) -> Self:
        """Add the weights of each pair; the logarithm of other sums than counts keeps old rows apart in float32."""
        weighted = replace(rows, labels=weights.astype(np.float32), mean=0.0, weights=None)
        matrix, sums = InteractionMatrix.with_strengths(weighted, user, item, device=device)
        whole = bool((sums == sums.floor()).all())
        if len(sums) and float(sums.min()) < 1:
            sums = 1 + sums.log2() - sums.log2().min()
        return cls(matrix.users * matrix.num_items + matrix.items, matrix, sums, whole)

    def of_pairs(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the rows of each pair, 0 for a new one; shape (B,)."""
        wanted = users * self.matrix.num_items + items
        place = torch.searchsorted(self.pairs, wanted).clamp(max=max(0, len(self.pairs) - 1))
        if not len(self.pairs):
            return torch.zeros(len(users), device=self.rows.device)
        return torch.where(self.pairs[place] == wanted, self.rows[place], 0.0)

    def of_all(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the rows of each user and item, shape (U, I)."""
        own = self.matrix.of_users(users, self.rows)
        counts = torch.zeros(len(users), self.matrix.num_items, device=self.rows.device)
        assert own.weights is not None
        counts[rows_of(own), own.values] = own.weights
        return counts[:, items]


def _values_of_items(context: TrainingContext, item: Column, values: Column, device: torch.device) -> Tensor:
    ids = torch.arange(int(item.cardinality or 0), dtype=torch.int32, device=device)
    feature = context.join({item.name: ids}).get(values.name)
    if feature is None:
        raise ConfigError(
            f"model.within is {values.name}, which is no feature of {item.name}",
            hint="join item features with JoinExternal in features.ops",
        )
    if not isinstance(feature, Ragged):
        feature = Ragged(feature, torch.arange(len(ids) + 1, device=device))
    has_value = torch.zeros(len(ids), int(values.cardinality or 0), device=device)
    has_value[rows_of(feature), feature.values.long()] = 1.0
    has_value[:, : values.own_ids.start] = 0.0  # null and unseen are no values
    return has_value


class Popularity(ClosedFormModel):
    """An item's score is the sum of the weights of its rows in train, their number by default, for all users.

    `half_life` and `window` weight rows by age too. With `within`, items without a favorite value of the user get scores
    below 1, in unchanged order; with `own_first`, items outside the user's history.
    """

    scoring = "catalog"
    folds_in = True
    ranks_without_history = True
    deterministic = True
    loss_options = frozenset({"features.weight"})
    counts: Tensor

    def __init__(self, config: PopularityConfig, schema: Schema) -> None:
        super().__init__()
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.register_buffer("counts", torch.zeros(int(self.item.cardinality or 0), dtype=torch.float64))
        self._ticks = schema.ticks
        self._favorites: Favorites | None = None
        self._own: OwnItems | None = None
        self._values = None if config.within is None else schema[config.within]
        if self._values is not None and (
            self._values not in schema.categorical or self._values.role is not Role.FEATURE
        ):
            raise ConfigError(
                f"model.within is {config.within}, which is no categorical feature",
                hint="name an item feature, such as genres",
            )

    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Count interactions.

        Raises:
            ConfigError: `half_life` or `window` is set, and the data has no timestamps.
        """
        del progress
        rows = context.interactions()
        counts = np.bincount(rows.item_idx, weights=self._weights(rows), minlength=len(self.counts))
        self.counts.copy_(torch.from_numpy(counts))

    def set_context(self, context: TrainingContext) -> None:
        """Determine the favorite values of each user, with `within`, and the rows of each pair, with `own_first`."""
        if self.config.own_first:
            rows = context.interactions()
            self._own = OwnItems.of(rows, self._weights(rows), self.user, self.item, device=self.device)
        if self._values is not None:
            self._favorites = Favorites.of(
                context, self.user, self.item, self._values,
                number=self.config.num_favorites, positive_only=self.config.positive_only, device=self.device,
            )  # fmt: skip

    def score(self, batch: Batch) -> Tensor:
        """Return the counts of the rows' items; shape (B,)."""
        users, items = pair_ids(batch, self.user, self.item)
        counts = self.counts[items]
        favorite = None if self._favorites is None else self._favorites.of_pairs(users, items)
        return self._ordered(counts, favorite, None if self._own is None else self._own.of_pairs(users, items))

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the item counts for each user; shape (U, I)."""
        # float32 loses the last digits of counts above 2**24; the ranking breaks such ties by the exact count.
        counts = self.counts[items].expand(len(users), -1)
        favorite = None if self._favorites is None else self._favorites.of_all(users, items)
        return self._ordered(counts, favorite, None if self._own is None else self._own.of_all(users, items))

    def _ordered(self, counts: Tensor, favorite: Tensor | None, own: Tensor | None) -> Tensor:
        """Map the counts of other items below 1, and those of favorites and of own items, by their rows, to 1 and above."""
        if favorite is not None:
            counts = torch.where(favorite, 1 + counts, counts / (1 + self.counts.max()))
        if own is not None and self._own is not None:
            share = counts / (2 + self.counts.max())
            among_equals = share if self._own.whole else 0.0
            counts = torch.where(own > 0, own + among_equals, share)
        return counts.float()

    def _weights(self, rows: Interactions) -> npt.NDArray[np.float64]:
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights.astype(np.float64)
        if self.config.positive_only:
            weights *= rows.positive
        if self.config.half_life is None and self.config.window is None:
            return weights
        if rows.times is None:
            raise ConfigError(
                "model.half_life and model.window need times, and the prepared data has none",
                hint="set features.timestamp to the time column",
            )
        times = rows.times.astype(np.float64)
        age = (times.max(initial=-np.inf) - times) / self._ticks
        if self.config.window is not None:
            weights *= age <= self.config.window
        if self.config.half_life is not None:
            weights *= np.exp2(-age / self.config.half_life)
        return weights
