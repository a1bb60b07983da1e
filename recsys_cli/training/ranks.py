"""The processes that train together: which one this is, and what they tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Ranks:
    """One process among those that train a model together; alone, everything here does nothing.

    Attributes:
        rank: Which one this is.
        world_size: How many there are.
    """

    rank: int = 0
    world_size: int = 1

    def sum_gradients(self, model: nn.Module) -> None:
        """Replace each gradient by the sum of that parameter's gradients on all ranks."""
