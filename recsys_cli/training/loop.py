"""The training loop: a generator of events, consistent at every one of them, so that the caller can save there."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.profiler import record_function

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import Place
from recsys_cli.errors import TrainingError
from recsys_cli.features.hashing import mix
from recsys_cli.models.model import Model
from recsys_cli.training import checkpoint
from recsys_cli.training.average import Average
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.events import EpochEnded, EpochRecord, Stepped, TrainingEvent, Validating
from recsys_cli.training.goal import Figures, Goal
from recsys_cli.training.objective import aimed
from recsys_cli.training.step import Step
from recsys_cli.training.validation import Validation, not_finite

WAITING = "recsys: waiting for data"
"""Name of the range in a profiler's trace in which there is no batch yet."""
_VALIDATING = 1
_LOOK_STEPS = 50
"""How often the loss is looked at on a GPU, where looking waits for it. On the CPU it is free, and done every step."""


class Batches(Protocol):
    """What the loop needs of a loader."""

    num_rows: int

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...

    def step_rows(self, step: int) -> int:
        """Return how many rows a step of an epoch has, over all ranks."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration."""

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration begin at {"epoch", "step"}."""


@dataclass
class Progress:
    """Where training is: epochs and steps are those that are done, sums are of the epoch that is going on."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    rows: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    waiting: float = 0.0
    history: list[EpochRecord] = field(default_factory=list)


class Training:
    """A model being trained.

    Args:
        model: On its device.
        config: How to train it; what decides the data (seed, batch size) is the loader's.
        train: Batches to learn from.
        valid: Batches to measure on after each epoch, or None.
        goal: What to be after.
        ranks: The processes that train it together, each with its piece of the batches; None is this one alone.
    """

    def __init__(
        self,
        model: Model,
        config: TrainConfig,
        train: Batches,
        valid: Batches | None,
        *,
        goal: Goal,
        ranks: Ranks | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.train = train
        self.valid = valid
        self.goal = goal
        self.ranks = ranks or Ranks()
        self.step = Step(model, config, self.ranks)
        self.device = self.step.device
        self.progress = Progress()
        self._average = Average(model, decay=config.ema, sparse=config.sparse) if config.ema else None
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)

    def run(self) -> Iterator[TrainingEvent]:
        """Train to the end, from wherever `restore` put it; yields after each step, validation batch and epoch.

        Raises:
            TrainingError: The loss is not finite.
        """
        while not self.finished:
            yield from self._epoch()
            figures = yield from self._validate()
            record = self._close(figures)
            yield EpochEnded(record, best=self.best is record)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the best of them is too long ago."""
        history, patience = self.progress.history, self.config.early_stopping
        if len(history) >= self.config.epochs:
            return True
        return bool(patience and self.valid is not None and self.best and len(history) - self.best.epoch >= patience)

    @property
    def best(self) -> EpochRecord | None:
        """The best epoch by what is monitored, the first of several; the last where that is not defined in any epoch."""
        best, highest = None, -math.inf
        for record in self.progress.history:
            quality = self.goal.monitor.quality(record.valid)
            quality = -math.inf if quality is None else quality
            if quality > highest or quality == -math.inf == highest:
                best, highest = record, quality
        return best

    def weights(self) -> dict[str, Tensor]:
        """Return what validation measures, under the names of a checkpoint: the average where there is one."""
        with self._averaged():
            return checkpoint.weights(self.model)

    def state(self) -> Checkpoint:
        """Return everything that training needs to go on from here, as references to live tensors.

        Raises:
            TrainingError: The loss or a weight is not finite, so that there is nothing to go on from.
        """
        self._look()
        weights = checkpoint.weights(self.model)
        if (broken := checkpoint.not_finite(weights)) is not None:  # a finite loss may have a gradient that is not
            raise TrainingError(
                f"{broken} is not finite after {self._where}",
                hint="try a smaller train.learning_rate or train.precision=fp32",
            )
        tensors = {
            **weights,
            **checkpoint.optimizer_state(self.model, self.step.optimizers),
            **({} if self._average is None else self._average.state()),
        }
        return Checkpoint(tensors, {"progress": asdict(self.progress), "scaler": self.step.scaler.state_dict()})

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a state: to the same weights, bit for bit on a CPU, as if there had been no break.

        Raises:
            TrainingError: It is the state of something else.
        """
        checkpoint.restore(saved, self.model, self.step.optimizers)
        self.step.scaler.load_state_dict(saved.meta["scaler"])
        if self._average is not None:
            self._average.restore(saved.tensors)
        values: dict[str, Any] = dict(saved.meta["progress"])
        history = [EpochRecord(**record) for record in values.pop("history")]
        self.progress = Progress(**values, history=history)
        self._loss_sum.fill_(self.progress.loss)

    def _epoch(self) -> Iterator[Stepped]:
        progress, num_steps = self.progress, len(self.train)
        self.model.train()
        self.train.set_epoch(progress.epoch)
        self.train.load_state_dict({"epoch": progress.epoch, "step": progress.step})
        if progress.step >= num_steps:  # interrupted while validating
            return
        batches = iter(self.train)
        for _ in range(progress.step, num_steps):
            start = time.perf_counter()
            with record_function(WAITING):
                batch = next(batches)
            waited = time.perf_counter() - start
            rows = self.train.step_rows(progress.step)
            self._step(batch, rows)
            progress.step += 1
            progress.total_steps += 1
            progress.rows += rows
            if self.device.type == "cpu" or progress.step % _LOOK_STEPS == 0 or progress.step == num_steps:
                self._look()
            progress.waiting += waited
            progress.seconds += time.perf_counter() - start
            yield Stepped(
                progress.epoch + 1, progress.total_steps, progress.rows, progress.loss / progress.rows,
                progress.seconds, progress.waiting,
            )  # fmt: skip

    def _step(self, batch: Batch, rows: int) -> None:
        qualities = (self.goal.monitor.quality(record.valid) for record in self.progress.history)
        known = [quality for quality in qualities if quality is not None and quality > -math.inf]
        place = Place(self.progress.total_steps, len(self.train), self.config.epochs, known)
        loss = self.step(aimed(batch, self.goal), place, rows=rows)
        if self._average is not None:
            self._average.update(place.step)
        self._loss_sum += loss.double() * rows

    def _look(self) -> None:
        """Bring the sum of the losses to the host; it stays NaN once a loss was, so that no step has to be looked at."""
        progress = self.progress
        progress.loss = float(self._loss_sum)
        if not math.isfinite(progress.loss):
            when = "at" if self.device.type == "cpu" else "at or before"
            what = f"the loss is not a finite number {when} {self._where}"
            raise not_finite(what, "train", self.ranks.union(self._broken_columns()))

    @property
    def _where(self) -> str:
        return f"step {self.progress.total_steps} (epoch {self.progress.epoch + 1})"

    def _broken_columns(self) -> list[str]:
        """Read the batches again that were trained on since the loss was looked at; return their columns that are not finite."""
        last = self.progress.step
        first = max(0, last - (1 if self.device.type == "cpu" else _LOOK_STEPS))
        self.train.load_state_dict({"epoch": self.progress.epoch, "step": first})
        return [name for batch in islice(self.train, last - first) for name in batch.not_finite()]

    def _validate(self) -> Generator[Validating, None, Figures]:
        """Measure the model on the validation split, where there is one."""
        if self.valid is None:
            return {}
        self.model.eval()
        torch.manual_seed(mix(self.config.seed, self.ranks.rank, self.progress.total_steps, _VALIDATING))
        validation = Validation(self.valid.num_rows, self.goal, self.ranks)
        for batch in self.valid:
            with self._averaged(), self.step.autocast():
                validation.add(self.model, batch)
            yield Validating(self.progress.epoch + 1, validation.rows)
        with self._averaged():
            return validation.figures(self.model)

    def _averaged(self) -> AbstractContextManager[None]:
        return nullcontext() if self._average is None else self._average.applied()

    def _close(self, figures: Figures) -> EpochRecord:
        """End the epoch that is going on; return what it was like."""
        progress = self.progress
        record = EpochRecord(
            epoch=progress.epoch + 1,
            step=progress.total_steps,
            rows=progress.rows,
            train_loss=progress.loss / max(progress.rows, 1),
            valid=figures,
            seconds=progress.seconds,
            waiting=progress.waiting,
        )
        self.progress = Progress(epoch=record.epoch, total_steps=record.step, history=[*progress.history, record])
        self._loss_sum.zero_()
        return record
