"""Losses over sampled items: the negatives, the false ones among them, and losses with memory for a block of targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.features.schema import FIRST

_BLOCK = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Scores per block: on a CPU about the size of a cache."""
_FAR = 1e30
"""Scores of false negatives are this far below: finite, and below any score of a model."""
_LEAST, _NOTHING = -40.0, 4.3e-18
"""Exponentials of values below the first are below the second, negligible against 1, and set to 0: subnormal numbers, here or in
the gradient, and the exponential of minus infinity take up to fifty times as long."""


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


@dataclass(frozen=True)
class FalseNegatives:
    """False negatives of P targets among N negatives, as a range of consecutive targets for each of M negatives.

    They are few of P × N pairs, and most targets share theirs with the next one: writing them is far cheaper than
    reading a mask of all pairs.

    Attributes:
        columns: Negatives, 0 to N - 1, also several times; shape (M,).
        first: First target of each, shape (M,).
        last: Target after the last one, shape (M,).
    """

    columns: Tensor
    first: Tensor
    last: Tensor

    @classmethod
    def of(cls, items: Tensor, first: Tensor, last: Tensor, negatives: Tensor) -> Self:
        """Find T items, each with its range of targets, among negatives with repeats, shape (N,)."""
        values, order = negatives.sort()
        low = torch.searchsorted(values, items)
        which, number = _expand(torch.searchsorted(values, items, right=True) - low)
        return cls(order[low[which] + number], first[which], last[which])

    def of_block(self, block: slice, width: int) -> Tensor:
        """Return the places of the false negatives of a block of targets in its flat scores, shape (targets, width)."""
        first = self.first.clamp(min=block.start)
        which, number = _expand((self.last.clamp(max=block.stop) - first).clamp_(min=0))
        return (first - block.start)[which].add_(number).mul_(width).add_(self.columns[which])


def repeats(items: Tensor, rows: Tensor) -> Tensor:
    """Return whether the same item comes earlier in the same sequence, bool, shape (T,), of T items of sequences, shape (T,)."""
    keys, order = (rows * (items.max() + 1) + items).sort(stable=True)
    found = torch.zeros_like(items, dtype=torch.bool)
    found[order[1:]] = keys[1:] == keys[:-1]
    return found


def _expand(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return each index `count` times, and the number of each repetition from 0; both of shape (sum of counts,)."""
    which = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return which, torch.arange(len(which), device=counts.device) - starts[which]


class Terms(NamedTuple):
    """Losses of T targets with their derivatives.

    Attributes:
        losses: Shape (T,).
        of_positives: Derivatives by the scores of the targets, shape (T,).
        of_negatives: Derivatives by the scores of the negatives divided by `scales`, shape (T, N).
        scales: Shape (T,). Multiplying the vectors of a product is cheaper than multiplying T × N values.
    """

    losses: Tensor
    of_positives: Tensor
    of_negatives: Tensor
    scales: Tensor


Loss = Callable[[Tensor, Tensor], Terms]
"""A loss by the scores of T targets, shape (T,), and of N negatives, shape (T, N), changed in place and -1e30 for false ones."""


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

    def __call__(self, positive: Tensor, negative: Tensor) -> Terms:
        """Return -log(exp(s⁺) / (exp(s⁺) + Σ exp(s⁻ - log_expected)))."""
        # Few passes over memory: besides the products of vectors this is most of the time of a step.
        terms = negative.sub_(self.log_expected)
        top = torch.maximum(terms.amax(dim=1), positive)
        F.threshold(terms.sub_(top.unsqueeze(1)).clamp_(min=_LEAST).exp_(), _NOTHING, 0.0, inplace=True)
        own = (positive - top).exp()
        total = terms.sum(dim=1) + own
        return Terms(total.log() + top - positive, own / total - 1, terms, 1 / total)


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

    def __call__(self, positive: Tensor, negative: Tensor) -> Terms:
        """Return the loss of each target."""
        bias = math.log(max(negative.shape[1], 1) / self.power)
        positive = positive - bias
        terms = negative.sub_(bias).clamp_(min=_LEAST)
        losses = F.softplus(terms).sum(dim=1) + self.power * F.softplus(-positive)
        return Terms(losses, -self.power * (-positive).sigmoid(), terms.sigmoid_(), torch.ones_like(losses))


def losses_of_rows(loss: Loss, positive: Tensor, negative: Tensor, masked: Tensor) -> Tensor:
    """Return the losses of T targets, shape (T,), float32, with gradients of `positive`, shape (T,), and `negative`, shape (T, N).

    `masked` has false negatives, such as the target itself, which the loss counts as positive.
    """
    losses: Tensor = _RowLosses.apply(positive, negative, masked, loss)
    return losses


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positive: Tensor, negative: Tensor, masked: Tensor, loss: Loss) -> Tensor:
        scores = negative.to(torch.float32, copy=True)
        scores.add_(masked.view(torch.uint8), alpha=-_FAR)  # far faster than masked_fill
        terms = loss(positive.float(), scores)
        ctx.save_for_backward(terms.of_positives, terms.of_negatives, terms.scales)
        return terms.losses

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_positive, by_negative, scales = ctx.saved_tensors
        return gradients[0] * by_positive, (gradients[0] * scales).unsqueeze(1) * by_negative, None, None


class Targets(NamedTuple):
    """P targets.

    Attributes:
        predictions: Shape (P, D).
        vectors: Vectors of the target items, shape (P, D).
        weights: Shape (P,); None for ones.
    """

    predictions: Tensor
    vectors: Tensor
    weights: Tensor | None = None


def catalog_loss(targets: Targets, candidates: Tensor, loss: Loss, false_negatives: FalseNegatives) -> Tensor:
    """Return the weighted sum of a loss of P targets against N candidates, shape (N, D); a scalar.

    Memory is that of a block of targets × N, forward and backward: the gradient of a block follows its loss at once, as the
    sum needs nothing from other blocks.
    """
    total: Tensor = _BlockedLoss.apply(
        targets.predictions, targets.vectors, candidates, targets.weights, loss, false_negatives
    )
    return total


class _BlockedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        predictions: Tensor,
        vectors: Tensor,
        candidates: Tensor,
        weights: Tensor | None,
        loss: Loss,
        false_negatives: FalseNegatives,
    ) -> Tensor:
        number, width = len(predictions), len(candidates)
        precision = torch.promote_types(predictions.dtype, torch.float32)
        total = torch.zeros((), dtype=precision, device=predictions.device)
        gradients = tuple(torch.zeros_like(part, dtype=precision) for part in (predictions, vectors, candidates))
        size = max(1, _BLOCK[predictions.device.type] // max(width, 1))
        for start in range(0, number, size):
            block = slice(start, min(start + size, number))
            states, own = predictions[block], vectors[block]
            scores = (states @ candidates.T).to(precision)
            scores.view(-1).index_fill_(0, false_negatives.of_block(block, width), -_FAR)
            losses, by_positive, by_negative, scales = loss((states * own).sum(dim=1, dtype=precision), scores)
            if weights is not None:
                weight = weights[block].to(precision)
                losses, by_positive, scales = losses * weight, by_positive * weight, scales * weight
            total += losses.sum()
            by_positive, scales = by_positive.unsqueeze(1), scales.unsqueeze(1)
            by_negative = by_negative.to(states.dtype)
            gradients[0][block] = (
                (by_negative @ candidates).to(precision).mul_(scales).addcmul_(by_positive, own.to(precision))
            )
            gradients[1][block] = by_positive * states
            gradients[2].add_(by_negative.T @ (states * scales).to(states.dtype))
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [part.dtype for part in (predictions, vectors, candidates)]
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ((part * gradients[0]).to(dtype) for part, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return (*scaled, None, None, None)
