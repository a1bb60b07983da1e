"""Coordinate descent for many elastic nets at once, whose predictors are the same and known by their products."""

from __future__ import annotations

import torch
from torch import Tensor

_TOGETHER = 64
"""Coordinates after which the residuals of all others are brought up to date: by one product of matrices instead of many."""


def columns(
    products: Tensor, start: int, stop: int, *, l1: float, l2: float, tolerance: float, max_sweeps: int
) -> Tensor:
    """Return the weights, not negative, by which columns are sums of the others.

    One coordinate after the other is set to its best value given all others (Friedman, Hastie and Tibshirani, "Regularization Paths
    for Generalized Linear Models via Coordinate Descent", 2010, section 2.2), for all columns at once. The result is that of each
    column alone.

    Args:
        products: XᵀX, shape (C, C); with no zero on its diagonal.
        start: The columns start, …, stop - 1 are wanted.
        stop: See start.
        l1: λ.
        l2: β.
        tolerance: The columns are done when no weight changes by more in a sweep.
        max_sweeps: When to stop all the same.

    Returns:
        Shape (C, stop - start), with zeros where a column would be its own predictor.
    """
    residuals = products[:, start:stop].clone()  # Xᵀ(x - Xw) for each column x and its weights w
    weights = torch.zeros_like(residuals)
    own = torch.arange(start, stop, device=products.device)
    for _ in range(max_sweeps):
        change = 0.0
        for first in range(0, len(products), _TOGETHER):
            last = min(first + _TOGETHER, len(products))
            before = weights[first:last].clone()
            _sweep(
                products[first:last, first:last], residuals[first:last], weights[first:last], own - first, l1=l1, l2=l2
            )
            changes = weights[first:last] - before
            residuals.addmm_(products[:, first:last], changes, alpha=-1)
            change = max(change, float(changes.abs().max()))
        if change <= tolerance:
            break
    return weights


def _sweep(products: Tensor, residuals: Tensor, weights: Tensor, own: Tensor, *, l1: float, l2: float) -> None:
    """Set some coordinates to their best values one after the other, in place.

    Args:
        products: Of these coordinates, shape (c, c).
        residuals: Of these coordinates, shape (c, n); they are left as they are.
        weights: Of these coordinates, shape (c, n).
        own: Which coordinate each column itself is, shape (n,); below 0 or above c - 1 for none of these.
        l1: λ.
        l2: β.
    """
    current = residuals.clone()
    for place in range(len(products)):
        square = products[place, place]
        best = ((current[place] + square * weights[place] - l1) / (square + l2)).clamp_(min=0)
        best.masked_fill_(own == place, 0.0)
        rest = slice(place + 1, None)
        current[rest].addr_(products[rest, place], weights[place] - best)
        weights[place] = best
