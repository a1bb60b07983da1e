"""One step: the loss of a batch, its gradient, and what becomes of that until the weights are changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.profiler import record_function

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.features.hashing import mix
from recsys_cli.loader.order import pieces
from recsys_cli.models.dropout import Dropout
from recsys_cli.models.model import Model
from recsys_cli.training import hardware, optimizers
from recsys_cli.training.compilation import CompiledLoss
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.rows.gradient import rows_of
from recsys_cli.training.uncompiled import Uncompiled

FORWARD, BACKWARD, UPDATE = "recsys: forward", "recsys: backward", "recsys: optimizer"
"""What a step does, by the names of the ranges in a profiler's trace."""
_DROPOUT = 0x4450
"""Sets what is dropped apart from whatever else is drawn from the same seed."""
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
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        self.compiled = CompiledLoss(model) if config.compile else None
        self.optimizers = optimizers.build(model, config)
        self._optimizer = MultiOptimizer(self.optimizers)
        by_rows = model.row_dropout and not config.compile  # which cannot compile what numpy draws
        self._dropouts = [module for module in model.modules() if by_rows and isinstance(module, Dropout)]
        self._number = 0
        self.learning_rate = config.learning_rate
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def __call__(self, batch: Batch, place: TrainingPosition, *, rows: int | None = None) -> Tensor:
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
        self._number = place.step
        factor = self.config.schedule.factor(place) * self.config.rate_factor
        self.learning_rate = self.config.learning_rate * factor
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.zero_grad()
        with self.ranks.whole(self.model):
            with nullcontext() if self.compiled is None else self.compiled.watched():
                share = self._backward(batch, rows or batch.num_rows)
            loss = self.ranks.sum(share)
            self.ranks.sum_gradients(self.model)
        with record_function(UPDATE):
            self._update()
        return loss

    def _update(self) -> None:
        """Change the weights by their gradients; with scaled losses not where one of those overflowed."""
        self.scaler.unscale_(self._optimizer)
        if self.config.max_grad_norm is not None:
            clip(self._optimizer, self.config.max_grad_norm)
        self.scaler.step(self._optimizer)
        self.scaler.update()

    def autocast(self) -> torch.autocast:
        """Return a context in which the model computes in the chosen precision."""
        dtype = _DTYPES.get(self.precision)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def _backward(self, batch: Batch, rows: int) -> Tensor:
        """Add up the gradients of the mean loss; return this rank's share of that mean."""
        total = torch.zeros((), device=self.device)
        mean_of = self.compiled or self.model.loss
        for part, first_row in self._parts(batch, rows):
            self._place_dropout(first_row)
            with record_function(FORWARD), self.autocast():
                loss = mean_of(part) if part.num_rows else self.model.without_rows(part)
                loss = loss * (part.num_rows / rows)
            with record_function(BACKWARD):
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _place_dropout(self, first_row: int) -> None:
        """Let rows lose the same elements whichever rank has them; other models have more, or fewer, rows than the batch."""
        for number, module in enumerate(self._dropouts):
            module.seed_rows(mix(self.config.seed, self._number, number, _DROPOUT), first_row)

    def _parts(self, batch: Batch, rows: int) -> Iterator[tuple[Batch, int]]:
        """Cut this rank's rows as the loader has put them together, a piece of each part of the step; in order.

        Yields each piece, and the place in the step of its first row.

        Nothing is to be done for a part that has no rows anywhere. Without rows here there may be something to compute with other
        ranks, but not for a model that learns from users.
        """
        number, ranks = self.config.gradient_accumulation_steps, self.ranks
        alone = ranks.world_size == 1 or self.model.rows == "users"
        start = 0
        for part, (first, last) in enumerate(pieces(rows, parts=number, rank=ranks.rank, world_size=ranks.world_size)):
            stop = start + last - first
            there = stop > start if alone else rows * (part + 1) // number > rows * part // number
            if there:
                yield batch if number == 1 else batch.span(start, stop), first
            start = stop


class MultiOptimizer(Uncompiled):
    """Several optimizers as one: a gradient of one that overflows, or a norm over all, concerns the step of each.

    Args:
        several: What it stands for. It shares their groups of parameters, and has no state of its own.
    """

    def __init__(self, several: Sequence[Optimizer]) -> None:
        super().__init__(list(chain.from_iterable(optimizer.param_groups for optimizer in several)), {})
        self._several = several

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the step of each."""
        loss = closure() if closure is not None else None
        for optimizer in self._several:
            optimizer.step()
        return loss


def clip(optimizer: Optimizer, longest: float) -> Tensor:
    """Shorten all gradients together to a Euclidean norm; return the norm that they had.

    Sparse gradients count by what they hold, each row once.
    """
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    found = [_values(parameter) for parameter in parameters if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(values) for values in found]
    norm = torch.linalg.vector_norm(
        torch.stack([one.to(norms[-1].device) for one in norms])
    )  # tables may be on the host
    factor = (longest / (norm + 1e-6)).clamp(max=1.0)
    for values in found:
        values.mul_(factor.to(values.device))
    return norm


def _values(parameter: Tensor) -> Tensor:
    if not parameter.grad.is_sparse:  # type: ignore[union-attr]
        return parameter.grad  # type: ignore[return-value]
    return rows_of(parameter)[1]
