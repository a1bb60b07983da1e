"""Models that read from left to right: after each item they tell the next one, so that a window teaches at all its places."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from recsys_cli.models.sequence.histories import Windows, first_places
from recsys_cli.models.sequence.model import SequenceModel


class CausalModel(SequenceModel):
    """A model whose state after an item depends on that item and those before it."""

    @abstractmethod
    def states(self, vectors: Tensor, counts: Tensor) -> Tensor:
        """Return what the model makes of each sequence after each of its items.

        Args:
            vectors: The items' vectors, shape (B, L, D), zero where there is none.
            counts: How many items there are, shape (B,); what comes after them is of no meaning.

        Returns:
            Shape (B, L, D); the first one is that of an empty sequence where there are no items.
        """

    @property
    def window(self) -> int:
        """One more than is read: the last one is only told."""
        return self.length + 1

    def targets_of(self, items: float) -> float:
        """Return how many items come after another one."""
        return items - 1

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Tell each item but the first from those before it."""
        asked = windows.there
        asked[:, 0] = False
        states = self.states(vectors[:, :-1], (windows.counts - 1).clamp(min=0))
        return asked, states[asked[:, 1:]]

    def ruled_out(self, windows: Windows, asked: Tensor, drawn: Tensor) -> Tensor:
        """Rule out what comes at the place and before it."""
        rows, places = asked.nonzero(as_tuple=True)
        return first_places(windows.items, drawn)[rows] <= places.unsqueeze(1)

    def encode(self, users: Tensor) -> Tensor:
        """Return the states after the latest items, shape (B, D)."""
        windows = self.histories.last(users, self.length)
        vectors = self.item_vectors(windows.items.flatten()).view(*windows.items.shape, -1)
        rows = torch.arange(len(users), device=users.device)
        return self.states(vectors, windows.counts)[rows, (windows.counts - 1).clamp(min=0)]
