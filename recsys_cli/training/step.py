"""Training step: loss, compiled or not, gradients, gradient clipping and update of the weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.errors import TrainingError
from recsys_cli.features.hashing import mix
from recsys_cli.loader.order import pieces
from recsys_cli.models.layers import AllGatherModule, Dropout
from recsys_cli.models.model import Model
from recsys_cli.training import hardware, optimizers
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.row_optimizers import Uncompiled, rows_of


class CompiledLoss:
    """The loss of a model, compiled on its first call for batches of any size; modifies the model.

    Excluded are embedding lookups (data-dependent shapes, sparse gradients) and modules with collectives. `seconds` is
    the compile time so far.
    """

    def __init__(self, model: Model) -> None:
        torch.compiler.reset()  # torch limits the compiled variants per code object; earlier models count
        for module in model.modules():
            for name in getattr(module, "uncompiled", ()) or (("forward",) if _is_excluded(module) else ()):
                setattr(module, name, torch.compiler.disable(getattr(module, name)))
        self._loss = torch.compile(model.loss, dynamic=True)
        self._started = 0.0
        self.seconds = 0.0

    def __call__(self, batch: Batch) -> Tensor:
        """Return the loss; equal to the uncompiled one up to rounding."""
        loss: Tensor = self._loss(batch)
        return loss

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the compile time of a block; the backward pass is compiled on its first run.

        Raises:
            TrainingError: Compilation failed.
        """
        # Imported late: torch.compile has loaded both, and other runs skip the cost.
        from torch._dynamo.callback import callback_handler
        from torch._dynamo.exc import TorchDynamoException

        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)
        try:
            yield
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise TrainingError(
                f"the model's loss cannot be compiled: {reason}",
                hint="set train.compile=false, or install a C++ compiler (apt install g++), and on a GPU Triton",
            ) from error
        finally:
            callback_handler.remove_start_callback(self._begin)
            callback_handler.remove_end_callback(self._end)

    def _begin(self, _: object) -> None:
        self._started = time.perf_counter()

    def _end(self, _: object) -> None:
        self.seconds += time.perf_counter() - self._started


def _is_excluded(module: nn.Module) -> bool:
    is_sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    return is_sparse or (isinstance(module, AllGatherModule) and module.gather is not None)


_DROPOUT = 0x4450
"""Seed offset of dropout."""
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Step:
    """Training step of a model on its device, with its optimizers and, for fp16, its loss scaler."""

    def __init__(self, model: Model, config: TrainConfig, ranks: Ranks) -> None:
        self.model = model
        self.config = config
        self.ranks = ranks
        self.device = model.device
        self.precision = hardware.precision(config.precision, self.device, bf16_on_cpu=model.bf16_on_cpu)
        self.compiled = CompiledLoss(model) if config.compile else None
        self.optimizers = optimizers.build(model, config)
        self._optimizer = MultiOptimizer(self.optimizers)
        by_row = model.row_dropout and not config.compile  # masks by row come from numpy, beyond torch.compile
        self._dropouts = [module for module in model.modules() if by_row and isinstance(module, Dropout)]
        self._number = 0
        self.learning_rate = config.learning_rate
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def __call__(self, batch: Batch, position: TrainingPosition, *, rows: int | None = None) -> Tensor:
        """Update the weights with one batch; return its mean loss over all ranks, detached.

        Args:
            batch: This rank's share of the batch.
            position: Step and epoch, for the learning rate schedule and the seed.
            rows: Rows of the batch over all ranks; None for the rows of `batch`.

        Raises:
            LostRankError: Another rank is gone; weights and buffers are unchanged.
        """
        # The seed depends on the step only, so an exact resume needs no generator state.
        torch.manual_seed(mix(self.config.seed, self.ranks.rank, position.step))
        self._number = position.step
        factor = self.config.schedule.factor(position) * self.config.rate_factor
        self.learning_rate = self.config.learning_rate * factor
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.zero_grad()
        with self.ranks.restore_buffers(self.model), hardware.tf32(enabled=self.config.tf32):
            with nullcontext() if self.compiled is None else self.compiled.timed():
                share = self._backward(batch, rows or batch.num_rows)
            loss = self.ranks.sum(share)
            self.ranks.sum_gradients(self.model)
        self._update()
        return loss

    def _update(self) -> None:
        """Clip the gradients and update the weights; with loss scaling, skip an overflowed step."""
        self.scaler.unscale_(self._optimizer)
        if self.config.max_grad_norm is not None:
            clip(self._optimizer, self.config.max_grad_norm)
        self.scaler.step(self._optimizer)
        self.scaler.update()

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute in the precision of the config."""
        dtype = _DTYPES.get(self.precision)
        with (
            hardware.tf32(enabled=self.config.tf32),
            torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None),
        ):
            yield

    def _backward(self, batch: Batch, rows: int) -> Tensor:
        total = torch.zeros((), device=self.device)
        mean_loss = self.compiled or self.model.loss
        for part, first_row in self._parts(batch, rows):
            self._seed_dropout(first_row)
            with self.autocast():
                loss = mean_loss(part) if part.num_rows else self.model.without_rows(part)
                loss = loss * (part.num_rows / rows)
            self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _seed_dropout(self, first_row: int) -> None:
        """Seed dropout by row, for the same masks on any number of ranks.

        Models without `row_dropout` are excluded: their activations have other rows than the batch.
        """
        for number, module in enumerate(self._dropouts):
            module.seed_rows(mix(self.config.seed, self._number, number, _DROPOUT), first_row)

    def _parts(self, batch: Batch, rows: int) -> Iterator[tuple[Batch, int]]:
        """Yield this rank's pieces of the parts of the step (gradient accumulation), each with its first row in the step.

        A part without rows on any rank is skipped; one without rows on this rank may still need collectives.
        """
        number, ranks = self.config.gradient_accumulation_steps, self.ranks
        is_local = ranks.world_size == 1 or self.model.rows == "users"
        start = 0
        for part, (first, last) in enumerate(pieces(rows, parts=number, rank=ranks.rank, world_size=ranks.world_size)):
            stop = start + last - first
            has_rows = stop > start if is_local else rows * (part + 1) // number > rows * part // number
            if has_rows:
                yield batch if number == 1 else batch.span(start, stop), first
            start = stop


class MultiOptimizer(Uncompiled):
    """Several optimizers as one, for a joint gradient norm and a joint skip after an overflow; parameter groups are shared."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        super().__init__(list(chain.from_iterable(optimizer.param_groups for optimizer in optimizers)), {})
        self._optimizers = optimizers

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step every optimizer."""
        loss = closure() if closure is not None else None
        for optimizer in self._optimizers:
            optimizer.step()
        return loss


def clip(optimizer: Optimizer, max_norm: float) -> Tensor:
    """Clip the gradients in place to a global Euclidean norm, sparse ones by coalesced values; return the norm before."""
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    gradients = [_values(parameter) for parameter in parameters if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(values) for values in gradients]
    same_device = [norm.to(norms[-1].device) for norm in norms]  # tables may be on the host
    norm = torch.linalg.vector_norm(torch.stack(same_device))
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for values in gradients:
        values.mul_(factor.to(values.device))
    return norm


def _values(parameter: Tensor) -> Tensor:
    if not parameter.grad.is_sparse:  # type: ignore[union-attr]
        return parameter.grad  # type: ignore[return-value]
    return rows_of(parameter)[1]
