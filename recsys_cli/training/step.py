"""One step: the loss of a batch, its gradient, and what becomes of that until the weights are changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.profiler import record_function

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import Place
from recsys_cli.features.hashing import mix
from recsys_cli.models.model import Model
from recsys_cli.training import hardware, optimizers
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.rows.gradient import rows_of

FORWARD, BACKWARD, UPDATE = "recsys: forward", "recsys: backward", "recsys: optimizer"
"""What a step does, by the names of the ranges in a profiler's trace."""
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Step:
    """Makes steps; holds the optimizers and, for fp16, the scale of the losses.

    Args:
        model: On its device.
        config: How to train it.
        ranks: Who else trains it.
    """

    def __init__(self, model: Model, config: TrainConfig, ranks: Ranks) -> None:
        self.model = model
        self.config = config
        self.ranks = ranks
        self.device = model.device
        self.precision = hardware.precision(config.precision, self.device)
        self.optimizers = optimizers.build(model, config)
        self.learning_rate = config.learning_rate
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def __call__(self, batch: Batch, place: Place, *, rows: int | None = None) -> Tensor:
        """Change the weights by what one batch teaches; return its mean loss, detached.

        Args:
            batch: This rank's piece of it.
            place: Where training is.
            rows: How many rows all pieces have together; None where this is all.

        Raises:
            LostRankError: Another rank is gone; weights and buffers are as they were before.
        """
        # Random numbers follow from the step alone: nothing of the generator has to be kept to resume exactly.
        torch.manual_seed(mix(self.config.seed, self.ranks.rank, place.step))
        for optimizer, rates in zip(self.optimizers, self._rates, strict=True):
            optimizer.zero_grad()
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * self.config.schedule.factor(place)
        self.learning_rate = self.config.learning_rate * self.config.schedule.factor(place)
        with self.ranks.whole(self.model):
            loss = self.ranks.sum(self._backward(batch, rows or batch.num_rows))
            self.ranks.sum_gradients(self.model)
        with record_function(UPDATE):
            self._update()
        return loss

    def _update(self) -> None:
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        if self.config.clip is not None:
            clip(self.optimizers, self.config.clip)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()

    def autocast(self) -> torch.autocast:
        """Return a context in which the model computes in the chosen precision."""
        dtype = _DTYPES.get(self.precision)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def _backward(self, batch: Batch, rows: int) -> Tensor:
        """Add up the gradients of the mean loss; return this rank's share of that mean."""
        total = torch.zeros((), device=self.device)
        for part in batch.parts(self.config.accumulate):
            if not (part.num_rows or self.ranks.world_size > 1):
                continue
            with record_function(FORWARD), self.autocast():
                # Of no rows there is no mean; but what the ranks compute together, they compute with this one.
                loss = self.model.loss(part) if part.num_rows else self.model.score(part).sum()
                loss = loss * (part.num_rows / rows)
            with record_function(BACKWARD):
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total


def clip(optimizers: Sequence[Optimizer], longest: float) -> Tensor:
    """Shorten all gradients together to a Euclidean norm; return the norm that they had.

    Sparse gradients count by what they hold, each row once.
    """
    found = [_values(parameter) for parameter in _trained(optimizers)]
    norms = torch.stack([torch.linalg.vector_norm(values) for values in found])
    norm = torch.linalg.vector_norm(norms)
    factor = (longest / (norm + 1e-6)).clamp(max=1.0)
    for values in found:
        values.mul_(factor)
    return norm


def _trained(optimizers: Iterable[Optimizer]) -> Iterable[Tensor]:
    groups = chain.from_iterable(optimizer.param_groups for optimizer in optimizers)
    return (parameter for group in groups for parameter in group["params"] if parameter.grad is not None)


def _values(parameter: Tensor) -> Tensor:
    if not parameter.grad.is_sparse:  # type: ignore[union-attr]
        return parameter.grad  # type: ignore[return-value]
    return rows_of(parameter)[1]
