"""Popularity: items by their number of interactions in train."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import ClosedFormModel, Progress, TrainingContext, no_progress, pair_ids
from recsys_cli.models.popularity.config import Config
from recsys_cli.models.popularity.favorites import Favorites


class Model(ClosedFormModel):
    """An item's score is its number of rows in train, for all users.

    `half_life` and `window` weight rows by age. With `within`, items without a favorite value of the user get scores
    below 1, in unchanged order.
    """

    scoring = "catalog"
    folds_in = True
    ranks_without_history = True
    deterministic = True
    counts: Tensor

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__()
        self.config = config
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self.register_buffer("counts", torch.zeros(int(self.item.cardinality or 0), dtype=torch.float64))
        self._ticks = schema.ticks
        self._favorites: Favorites | None = None
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
        """Determine the favorite values of each user, with `within`."""
        if self._values is not None:
            self._favorites = Favorites.of(
                context, self.user, self.item, self._values,
                number=self.config.num_favorites, positive_only=self.config.positive_only, device=self.device,
            )  # fmt: skip

    def score(self, batch: Batch) -> Tensor:
        """Return the counts of the rows' items; shape (B,)."""
        users, items = pair_ids(batch, self.user, self.item)
        counts = self.counts[items]
        return (
            counts.float() if self._favorites is None else self._ordered(counts, self._favorites.of_pairs(users, items))
        )

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the item counts for each user; shape (U, I)."""
        # float32 loses the last digits of counts above 2**24; the ranking breaks such ties by the exact count.
        counts = self.counts[items].expand(len(users), -1)
        return (
            counts.float() if self._favorites is None else self._ordered(counts, self._favorites.of_all(users, items))
        )

    def _ordered(self, counts: Tensor, favorite: Tensor) -> Tensor:
        """Map the scores of other items below 1, and those of favorites to 1 and above."""
        return torch.where(favorite, 1 + counts, counts / (1 + self.counts.max())).float()

    def _weights(self, rows: Interactions) -> npt.NDArray[np.float64]:
        weights = np.ones(len(rows))
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
