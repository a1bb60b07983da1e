"""Samples of negatives by item frequency."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from recsys_cli.features.schema import FIRST


class NegativeSampler:
    """Samples `number` negatives for a batch in proportion to item frequency ** power; a smaller catalog is returned whole.

    Counts have shape (ids,); ids below FIRST are no items.
    """

    def __init__(self, counts: Tensor, *, number: int, power: float) -> None:
        self._number, self._counts, self._power = number, counts, power
        self._ids = torch.arange(FIRST, len(counts), device=counts.device)

    @cached_property
    def _shares(self) -> tuple[Tensor, Tensor]:
        """Log expected counts and cumulative probabilities of the ids; computed at the first sample."""
        shares = self._counts[FIRST:].double() ** self._power
        shares /= shares.sum()
        return (self._number * shares).log().float(), shares.cumsum(0)

    def sample(self) -> tuple[Tensor, Tensor]:
        """Sample N items with replacement, from torch's generator; return them and the logarithms of their expected counts."""
        if len(self._ids) <= self._number:
            return self._ids, torch.zeros(len(self._ids), device=self._ids.device)
        uniform = torch.rand(self._number, dtype=torch.float64, device=self._ids.device)
        log_expected, bounds = self._shares
        index = torch.searchsorted(bounds, uniform, right=True).clamp(max=len(self._ids) - 1)
        return self._ids[index], log_expected[index]
