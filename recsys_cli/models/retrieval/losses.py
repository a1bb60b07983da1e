"""Losses of a positive's score against those of sampled negatives: one number per row, not averaged."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

_EULER = 0.5772156649015329


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Return -log sigmoid(positive - negative), its mean over the negatives; shape (B,).

    Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", 2009.

    Args:
        positive: Scores of positives, shape (B,).
        negative: Scores of negatives, shape (B, N).
    """
    return F.softplus(negative - positive.unsqueeze(1)).mean(dim=1)


def warp(positive: Tensor, negative: Tensor, *, num_items: int) -> Tensor:
    """Return the hinge loss against the first violating trial, weighted by the rank that it makes likely; shape (B,).

    A trial violates if it scores above the positive less a margin of 1. If the n-th trial is the first, about
    r = (num_items - 1) // n items are above, and the weight is 1 + 1/2 + ... + 1/r, which puts its stress on the top of the
    ranking. Where no trial violates there is nothing to learn. Weston et al., "WSABIE", 2011; all trials are scored at once.

    Args:
        positive: Scores of positives, shape (B,).
        negative: Scores of the trials in their order, shape (B, N).
        num_items: How many items there are to draw from.
    """
    above = 1 - positive.unsqueeze(1) + negative
    first = (above > 0).int().argmax(dim=1, keepdim=True)
    rank = (num_items - 1) // (first.squeeze(1) + 1)
    harmonic = torch.special.digamma(rank.double() + 1) + _EULER
    return harmonic.to(above.dtype) * above.gather(1, first).squeeze(1).clamp(min=0)
