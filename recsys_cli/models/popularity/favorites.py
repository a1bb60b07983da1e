"""Favorite feature values of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column
from recsys_cli.models.interaction_matrix import InteractionMatrix, spans
from recsys_cli.models.item_to_item import add_rows, rows_of
from recsys_cli.models.model import TrainingContext

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
