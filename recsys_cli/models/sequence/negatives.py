"""The loss of the next item among all items, from a sample of them that is corrected for how it was drawn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.features.schema import FIRST


class Negatives:
    """Draws the items that stand for the catalog.

    Args:
        counts: How often each id comes; shape (ids,). Ids below FIRST are no items.
        number: How many are drawn; of a catalog that is no larger, all are taken.
        power: They are drawn in proportion to count ** power.
    """

    def __init__(self, counts: Tensor, *, number: int, power: float) -> None:
        self._number = number
        self._ids = torch.arange(FIRST, len(counts), device=counts.device)
        shares = counts[FIRST:].double() ** power
        shares /= shares.sum()
        self._log_expected = (number * shares).log().float()
        self._bounds = shares.cumsum(0)

    def draw(self) -> tuple[Tensor, Tensor]:
        """Draw with replacement, from torch's generator.

        Returns:
            The items, shape (N,); and for each the logarithm of how often it was to be expected among them, shape (N,).
        """
        if len(self._ids) <= self._number:
            return self._ids, torch.zeros(len(self._ids), device=self._ids.device)
        drawn = torch.rand(self._number, dtype=torch.float64, device=self._ids.device)
        places = torch.searchsorted(self._bounds, drawn, right=True).clamp(max=len(self._ids) - 1)
        return self._ids[places], self._log_expected[places]


def sampled_softmax(positive: Tensor, negative: Tensor, log_expected: Tensor, ruled_out: Tensor) -> Tensor:
    """Return the cross-entropy of the item that came, for each of P places; shape (P,), float32.

    The sum over the alternatives is estimated by the drawn ones, each divided by how often it was to be expected (importance
    sampling: Bengio and Senécal, "Adaptive importance sampling to accelerate training of a neural probabilistic language
    model", 2008). Where all items are given and expected once, and none is ruled out, it is the softmax over the catalog.

    Args:
        positive: Scores of the items that came, shape (P,).
        negative: Scores of the drawn items, shape (P, N).
        log_expected: As `Negatives.draw` has it, shape (N,).
        ruled_out: Which drawn items do not count, bool, (P, N): that which came, so that it is not counted twice, and what is
            no alternative to it.
    """
    others: Tensor = _LogSumExp.apply(negative, log_expected, ruled_out)
    return F.softplus(others - positive.float())


_FAR = 1e30
"""Taken from the score of what is ruled out, which leaves it finite, and below all that a model could score."""
_LEAST, _NOTHING = -40.0, 4.3e-18
"""Exponentials of less than the first are less than the second, which is nothing beside 1, so they are 0. Small numbers would
become ones that float32 has no normal form of, there or in the gradient: these take up to fifty times as long, and so does
the exponential of minus infinity."""


class _LogSumExp(torch.autograd.Function):
    """log sum exp(negative - log_expected) over what is not ruled out.

    Most of a step's numbers are here, so they are gone over rarely: exponentials are taken once and kept, and what can be is done
    in place. That takes half the time of torch's operations one by one.
    """

    @staticmethod
    def forward(ctx: Any, negative: Tensor, log_expected: Tensor, ruled_out: Tensor) -> Tensor:
        """Return shape (P,), float32."""
        # Bytes are added far faster than a mask is filled.
        terms = (negative.float() - log_expected).add_(ruled_out.view(torch.uint8), alpha=-_FAR)
        top = terms.amax(dim=1, keepdim=True)
        F.threshold(terms.sub_(top).clamp_(min=_LEAST).exp_(), _NOTHING, 0.0, inplace=True)
        total = terms.sum(dim=1, keepdim=True)
        ctx.save_for_backward(terms, total)
        return (total.log() + top).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the drawn items' scores: each one's share of the sum."""
        terms, total = ctx.saved_tensors
        return terms * (gradients[0].unsqueeze(1) / total), None, None
