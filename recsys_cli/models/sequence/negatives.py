"""Sampled softmax."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

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


def sampled_softmax(positive: Tensor, negative: Tensor, log_expected: Tensor, masked: Tensor) -> Tensor:
    """Return the cross-entropy of each of P targets over the catalog; shape (P,), float32.

    The softmax denominator is estimated by importance sampling: each negative, shape (P, N), is divided by its expected
    count (Bengio and Senécal, "Adaptive importance sampling to accelerate training of a neural probabilistic language
    model", 2008). With the whole catalog expected once and only the target masked, it is the full softmax. `masked` has
    false negatives, such as the target itself, already in the sum.
    """
    others: Tensor = _LogSumExp.apply(negative, log_expected, masked)
    return F.softplus(others - positive.float())


FAR = 1e30
"""Subtracted from masked scores: finite, and below any score of a model."""
LEAST, NOTHING = -40.0, 4.3e-18
"""Exponentials of values below the first are below the second, negligible against 1, and set to 0: subnormal numbers, here or in
the gradient, and the exponential of minus infinity take up to fifty times as long."""


class _LogSumExp(torch.autograd.Function):
    """log sum exp(negative - log_expected) over unmasked items, in half the time of separate torch operations.

    This is most of a step's arithmetic, so passes over memory are few: exponentials are computed once, most of it in
    place.
    """

    @staticmethod
    def forward(ctx: Any, negative: Tensor, log_expected: Tensor, masked: Tensor) -> Tensor:
        # Adding bytes is far faster than masked_fill.
        terms = (negative.float() - log_expected).add_(masked.view(torch.uint8), alpha=-FAR)
        top = terms.amax(dim=1, keepdim=True)
        F.threshold(terms.sub_(top).clamp_(min=LEAST).exp_(), NOTHING, 0.0, inplace=True)
        total = terms.sum(dim=1, keepdim=True)
        ctx.save_for_backward(terms, total)
        return (total.log() + top).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        terms, total = ctx.saved_tensors
        return terms * (gradients[0].unsqueeze(1) / total), None, None
