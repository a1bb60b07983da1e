"""Pairwise losses of a positive's score, shape (B,), against those of sampled negatives, shape (B, N)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

_EULER = 0.5772156649015329


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Return -log sigmoid(positive - negative), averaged over the negatives; shape (B,).

    Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", 2009.
    """
    return F.softplus(negative - positive.unsqueeze(1)).mean(dim=1)


def warp(positive: Tensor, negative: Tensor, *, num_items: int) -> Tensor:
    """Return the hinge loss of the first violating negative, weighted by the estimated rank; shape (B,).

    A negative violates if it scores above the positive minus a margin of 1. If the n-th is the first, the estimated
    rank is r = (num_items - 1) // n, and the weight 1 + 1/2 + ... + 1/r stresses the top of the ranking. Without a
    violation the loss is 0. Weston et al., "WSABIE", 2011; here all negatives are scored at once.
    """
    above = 1 - positive.unsqueeze(1) + negative
    first = (above > 0).int().argmax(dim=1, keepdim=True)
    rank = (num_items - 1) // (first.squeeze(1) + 1)
    harmonic = torch.special.digamma(rank.double() + 1) + _EULER
    return harmonic.to(above.dtype) * above.gather(1, first).squeeze(1).clamp(min=0)
