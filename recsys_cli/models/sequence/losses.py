"""Losses of targets against shared negatives or the whole catalog, in blocks of targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

_BLOCK = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Scores per block: on a CPU about the size of a cache."""
_FAR = 1e30
"""Subtracted from masked scores: finite, and below any score of a model."""
_LEAST, _NOTHING = -40.0, 4.3e-18
"""Exponentials of values below the first are below the second, negligible against 1, and set to 0: subnormal numbers, here or in
the gradient, and the exponential of minus infinity take up to fifty times as long."""


class Terms(NamedTuple):
    """Losses of T targets with their derivatives.

    Attributes:
        losses: Shape (T,).
        of_positives: Derivatives by the scores of the targets, shape (T,).
        of_negatives: Derivatives by the scores of the negatives, shape (T, N).
    """

    losses: Tensor
    of_positives: Tensor
    of_negatives: Tensor


Loss = Callable[[Tensor, Tensor, Tensor], Terms]
"""A loss by the scores of T targets, shape (T,), of N negatives, shape (T, N), changed in place, and the mask of false negatives,
shape (T, N)."""


@dataclass(frozen=True)
class SampledSoftmax:
    """Cross-entropy of a target over the catalog.

    The softmax denominator is estimated by importance sampling: each negative is divided by its expected count, as the
    logQ correction (Bengio and Senécal, "Adaptive importance sampling to accelerate training of a neural probabilistic
    language model", 2008). With the whole catalog expected once and only the target masked, it is the full softmax.

    Attributes:
        log_expected: Logarithms of the expected counts of the negatives, shape (N,).
    """

    log_expected: Tensor

    def __call__(self, positive: Tensor, negative: Tensor, masked: Tensor) -> Terms:
        """Return -log(exp(s⁺) / (exp(s⁺) + Σ exp(s⁻ - log_expected))) over unmasked negatives."""
        # Few passes over memory: this is most of the arithmetic of a step. Adding bytes is far faster than masked_fill.
        terms = negative.sub_(self.log_expected).add_(masked.view(torch.uint8), alpha=-_FAR)
        top = torch.maximum(terms.amax(dim=1), positive)
        F.threshold(terms.sub_(top.unsqueeze(1)).clamp_(min=_LEAST).exp_(), _NOTHING, 0.0, inplace=True)
        own = (positive - top).exp()
        total = terms.sum(dim=1) + own
        return Terms(total.log() + top - positive, own / total - 1, terms.div_(total.unsqueeze(1)))


@dataclass(frozen=True)
class GeneralizedBinaryCrossEntropy:
    """gBCE: binary cross-entropy with a power β of the target's probability, against overconfidence from sampling.

    -(β log σ(s⁺) + Σ log(1 - σ(s⁻))), with β = α (t (1 - 1/α) + 1/α) for the sampling rate α of the negatives and the
    calibration t: binary cross-entropy at t = 0, the probabilities of the full softmax at t = 1 (Petrov and Macdonald,
    "gSASRec: reducing overconfidence in sequential recommendation trained with negative sampling", 2023, eqs. 9 and 18).

    The loss is that of s - log(N / β), for N negatives: a bias of all scores at which targets and negatives weigh the same.
    Rankings do not depend on it; without it the first epochs only move all scores down, and Adagrad's rates fall with them.

    Attributes:
        power: β.
    """

    power: float

    @classmethod
    def calibrated(cls, calibration: float, *, rate: float) -> GeneralizedBinaryCrossEntropy:
        """Return the loss of a calibration t and a sampling rate α, both in [0, 1]."""
        return cls(rate * (calibration * (1 - 1 / rate) + 1 / rate))

    def __call__(self, positive: Tensor, negative: Tensor, masked: Tensor) -> Terms:
        """Return the loss over unmasked negatives."""
        bias = math.log(max(negative.shape[1], 1) / self.power)
        positive = positive - bias
        terms = negative.sub_(bias).add_(masked.view(torch.uint8), alpha=-_FAR).clamp_(min=_LEAST)
        losses = F.softplus(terms).sum(dim=1) + self.power * F.softplus(-positive)
        return Terms(losses, -self.power * (-positive).sigmoid(), terms.sigmoid_())


def losses_of_rows(loss: Loss, positive: Tensor, negative: Tensor, masked: Tensor) -> Tensor:
    """Return the losses of T targets, shape (T,), float32, with gradients of `positive`, shape (T,), and `negative`, shape (T, N).

    `masked` has false negatives, such as the target itself, which the loss counts as positive.
    """
    losses: Tensor = _RowLosses.apply(positive, negative, masked, loss)
    return losses


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, masked: Tensor, loss: Loss) -> Tensor:
        terms = loss(positive.float(), negative.to(torch.float32, copy=True), masked)
        ctx.save_for_backward(terms.of_positives, terms.of_negatives)
        return terms.losses

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_positive, by_negative = ctx.saved_tensors
        return gradients[0] * by_positive, gradients[0].unsqueeze(1) * by_negative, None, None


class Targets(NamedTuple):
    """P targets in windows of B users, shape (B, W).

    Attributes:
        places: Mask of the targets, bool, shape (B, W).
        predictions: Shape (P, D).
        vectors: Vectors of the target items, shape (P, D).
        weights: Shape (P,); None for ones.
    """

    places: Tensor
    predictions: Tensor
    vectors: Tensor
    weights: Tensor | None = None


Mask = Callable[[slice, Tensor], Tensor]
"""Returns the mask of false negatives for a slice of users and the mask of some targets in their windows, shape (T, N)."""


def catalog_loss(targets: Targets, candidates: Tensor, loss: Loss, masked: Mask) -> Tensor:
    """Return the weighted sum of a loss of P targets against N candidates, shape (N, D); a scalar.

    Memory is that of a block of targets × N, forward and backward: the gradient of a block follows its loss at once, as the
    sum needs nothing from other blocks.
    """
    total: Tensor = _BlockedLoss.apply(
        targets.predictions, targets.vectors, candidates, targets.places, targets.weights, loss, masked
    )
    return total


class _BlockedLoss(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - inputs of a torch function
        ctx: Any,
        predictions: Tensor,
        vectors: Tensor,
        candidates: Tensor,
        places: Tensor,
        weights: Tensor | None,
        loss: Loss,
        masked: Mask,
    ) -> Tensor:
        precision = torch.promote_types(predictions.dtype, torch.float32)
        total = torch.zeros((), dtype=precision, device=predictions.device)
        gradients = tuple(torch.zeros_like(part, dtype=precision) for part in (predictions, vectors, candidates))
        for block, users, some in _blocks(places, len(candidates)):
            states, own = predictions[block], vectors[block]
            scores = (states @ candidates.T).to(precision)
            terms = loss((states * own).sum(dim=1, dtype=precision), scores, masked(users, some))
            by_positive, by_negative, losses = terms.of_positives, terms.of_negatives, terms.losses
            if weights is not None:
                weight = weights[block].to(precision)
                by_positive, losses = by_positive * weight, losses * weight
                by_negative = by_negative.mul_(weight.unsqueeze(1))
            total += losses.sum()
            by_positive, by_negative = by_positive.unsqueeze(1), by_negative.to(states.dtype)
            gradients[0][block] = (by_negative @ candidates).to(precision).addcmul_(by_positive, own.to(precision))
            gradients[1][block] = by_positive * states
            gradients[2].add_(by_negative.T @ states)
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [part.dtype for part in (predictions, vectors, candidates)]
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ((part * gradients[0]).to(dtype) for part, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return (*scaled, None, None, None, None)


def _blocks(places: Tensor, width: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield slices of the targets, each with the slice of their users and their mask in the windows of these."""
    users = places.nonzero()[:, 0]
    size = max(1, _BLOCK[places.device.type] // max(width, 1))
    if len(users) <= size:
        yield slice(0, len(users)), slice(0, len(places)), places
        return
    numbers = places.flatten().cumsum(0).view(places.shape)  # from 1, at the targets
    for start in range(0, len(users), size):
        block = slice(start, min(start + size, len(users)))
        rows = slice(int(users[block.start]), int(users[block.stop - 1]) + 1)
        inside = places[rows] & (numbers[rows] > block.start) & (numbers[rows] <= block.stop)
        yield block, rows, inside
