"""Trainers: epochs with validation, checkpoints and resume; fits of closed forms; and parts of other models."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.errors import TrainingError
from recsys_cli.events import Emit, Message, Progress, ignore
from recsys_cli.features.hashing import mix
from recsys_cli.features.schema import Schema
from recsys_cli.loader import MemoryLoader, UserLoader
from recsys_cli.loader.order import EpochSteps
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.training import checkpoint
from recsys_cli.training.checkpoint import Checkpoint, Recorder, weights
from recsys_cli.training.data import TrainingData, validation_batches
from recsys_cli.training.launch import deferred_interrupt
from recsys_cli.training.objective import Figures, Objective, Validation, apply_label_smoothing, not_finite
from recsys_cli.training.optimizers import Average
from recsys_cli.training.progress import (
    EpochEnded,
    EpochRecord,
    Stepped,
    TrainingEvent,
    TrainingProgress,
    TrainingResult,
    Validating,
    best_epoch,
    event_message,
    notes,
    unit_of,
)
from recsys_cli.training.ranks import LostRankError, Ranks
from recsys_cli.training.step import Step
from recsys_cli.training.trackers import Series, Trackers, find
from recsys_cli.workspace import PreparedData, TrainedRun, write_text

_VALIDATING = 1
_CHECK_STEPS = 50
"""Steps between checks of the loss on a GPU, where a check synchronizes. On a CPU every step is checked."""


class Trainer:
    """Trains a model on its device with gradient steps.

    `fit` completes a run in a folder. `events` is the bare loop without files; model, optimizers and progress are
    consistent at every event.
    """

    def __init__(
        self,
        model: Model,
        data: TrainingData,
        config: TrainConfig,
        *,
        objective: Objective,
        ranks: Ranks | None = None,
        emit: Emit = ignore,
    ) -> None:
        self.model = model
        self.data = data
        self.config = config.model_copy(update={"batch_size": data.train.batch_size})
        self.objective = objective
        self.ranks = ranks or Ranks()
        self.emit = emit
        self.step = Step(model, self.config, self.ranks)
        self.device = self.step.device
        self.progress = TrainingProgress()
        self._average = (
            Average(model, decay=config.ema_decay, sparse=config.sparse_embeddings) if config.ema_decay else None
        )
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)

    def fit(self, run: TrainedRun, *, key: str, settings: Mapping[str, Any], resume: bool = False) -> TrainingResult:
        """Train to the end, with metrics and checkpoints in the folder of a run.

        `key` is stored in `last` and equal on all ranks; `settings` are for trackers.

        Raises:
            TrainingError: The loss is not finite, or `last` does not fit the model.
            LostRankError: Another process is gone.
            KeyboardInterrupt: After Ctrl-C on any rank, with `last` written.
        """
        config, writes = self.config, self.ranks.is_first
        trackers = Trackers(find(config.trackers if writes else ()), self.emit)
        recorder = Recorder(
            run, self, key=key, checkpoint_steps=config.checkpoint_steps, trackers=trackers, ranks=self.ranks,
            is_sharded=bool(checkpoint.sharded_tables(self.model)),
        )  # fmt: skip
        logged = recorder.resume() if resume else {}
        if resume:
            self.emit(Message(f"resuming {run.folder.name} at step {self.progress.total_steps + 1}"))
        self.ranks.agree({"the run": key, "the step": self.progress.total_steps})
        series = Series(run, settings, self.progress.total_steps)
        with trackers.session(series, logged=logged), deferred_interrupt() as interrupted:
            try:
                for event in self.events():
                    recorder.record(event, steps_per_epoch=len(self.data.train))
                    self.emit(event_message(event, self.data, epochs=config.epochs, unit=unit_of(self.model)))
                    if self.ranks.any(interrupted()):
                        recorder.save_last()
                        raise KeyboardInterrupt
            except LostRankError:
                self._save_after_loss(recorder)
                raise
        if (compiled := self.step.compiled) is not None:
            self.emit(Message(f"compilation took {compiled.seconds:.1f} s of that"))
        return self._result()

    def events(self) -> Iterator[TrainingEvent]:
        """Train from the current state to the end; yield after each step, validation batch and epoch."""
        while not self.finished:
            yield from self._epoch()
            figures = yield from self._validate()
            self.progress = self.progress.next_epoch(figures)
            self._loss_sum.zero_()
            record = self.progress.history[-1]
            yield EpochEnded(record, best=self.best is record)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or early stopping ends the run."""
        history, patience = self.progress.history, self.config.early_stopping
        if len(history) >= self.config.epochs:
            return True
        return bool(
            patience and self.data.valid is not None and self.best and len(history) - self.best.epoch >= patience
        )

    @property
    def best(self) -> EpochRecord | None:
        """The best epoch so far."""
        return best_epoch(self.progress.history, self.objective.monitor)

    def weights(self) -> dict[str, Tensor]:
        """Return the validated weights by name in a checkpoint: the moving average, if there is one."""
        with self._averaged():
            return checkpoint.weights(self.model)

    def state(self) -> Checkpoint:
        """Return the full training state, as references to live tensors.

        Raises:
            TrainingError: The loss or a weight is not finite.
        """
        self._check_loss()
        weights, shards = checkpoint.weights(self.model, whole=False), checkpoint.local_shards(self.model)
        tables = {shard.name: shard.values for shard in shards}
        name = checkpoint.not_finite({**weights, **tables})
        if name is not None:  # the gradient of a finite loss may be infinite
            raise TrainingError(
                f"{name} is not finite after {self.progress.position}",
                hint="try a smaller train.learning_rate or train.precision=fp32",
            )
        tensors = {
            **weights,
            **checkpoint.optimizer_state(self.model, self.step.optimizers),
            **({} if self._average is None else self._average.state()),
        }
        meta = {"progress": asdict(self.progress), "scaler": self.step.scaler.state_dict()}
        return Checkpoint(tensors, meta, shards)

    def restore(self, saved: Checkpoint) -> None:
        """Load a training state; on a CPU, training then gives the same weights bit for bit as without a break."""
        checkpoint.restore(saved, self.model, self.step.optimizers)
        self.step.scaler.load_state_dict(saved.meta["scaler"])
        if self._average is not None:
            self._average.restore(saved.tensors)
        self.progress = TrainingProgress.restored(saved.meta["progress"])
        self._loss_sum.fill_(self.progress.loss)

    def _epoch(self) -> Iterator[Stepped]:
        progress, num_steps = self.progress, len(self.data.train)
        self.model.train()
        self.data.train.set_epoch(progress.epoch)
        self.data.train.load_state_dict({"epoch": progress.epoch, "step": progress.step})
        if progress.step >= num_steps:  # interrupted during validation
            return
        batches = iter(self.data.train)
        for _ in range(progress.step, num_steps):
            start = time.perf_counter()
            batch = next(batches)
            waited = time.perf_counter() - start
            rows = self.data.train.step_rows(progress.step)
            self._step(batch, rows)
            progress.step += 1
            progress.total_steps += 1
            progress.rows += rows
            if self.device.type == "cpu" or progress.step % _CHECK_STEPS == 0 or progress.step == num_steps:
                self._check_loss()
            progress.waiting += waited
            progress.seconds += time.perf_counter() - start
            yield Stepped(
                progress.epoch + 1, progress.total_steps, progress.rows, progress.loss / progress.rows,
                progress.seconds, progress.waiting, self.step.learning_rate,
            )  # fmt: skip

    def _step(self, batch: Batch, rows: int) -> None:
        qualities = (self.objective.monitor.quality(record.valid) for record in self.progress.history)
        defined = [quality for quality in qualities if quality is not None and quality > -math.inf]
        position = TrainingPosition(self.progress.total_steps, len(self.data.train), self.config.epochs, defined)
        loss = self.step(apply_label_smoothing(batch, self.objective), position, rows=rows)
        if self._average is not None:
            self._average.update(position.step)
        self._loss_sum += loss.double() * rows

    def _check_loss(self) -> None:
        """Check the loss sum on the host; NaN persists in a sum, so not every step needs a check."""
        progress = self.progress
        progress.loss = float(self._loss_sum)
        if not math.isfinite(progress.loss):
            when = "at" if self.device.type == "cpu" else "at or before"
            text = f"the loss is not a finite number {when} {progress.position}"
            raise not_finite(text, "train", self.ranks.union(self._not_finite_columns()))

    def _not_finite_columns(self) -> list[str]:
        """Read the batches since the last check again; return their columns with NaN or infinite values."""
        last = self.progress.step
        first = max(0, last - (1 if self.device.type == "cpu" else _CHECK_STEPS))
        self.data.train.load_state_dict({"epoch": self.progress.epoch, "step": first})
        batches = islice(self.data.train, last - first)
        return [name for batch in batches for name in batch.not_finite(self.objective.filled)]

    def _validate(self) -> Generator[Validating, None, Figures]:
        if self.data.valid is None:
            return {}
        self.model.eval()
        torch.manual_seed(mix(self.config.seed, self.ranks.rank, self.progress.total_steps, _VALIDATING))
        validation = Validation(self.data.valid.num_rows, self.objective, self.ranks)
        for batch in self.data.valid:
            with self._averaged(), self.step.autocast():
                validation.add(self.model, batch)
            yield Validating(self.progress.epoch + 1, validation.rows)
        with self._averaged():
            return validation.figures(self.model)

    def _averaged(self) -> AbstractContextManager[None]:
        return nullcontext() if self._average is None else self._average.applied()

    def _save_after_loss(self, recorder: Recorder) -> None:
        """Save `last` after the loss of a process, on a CPU without sharded tables.

        A GPU may have applied an incomplete gradient sum, and sharded tables lost the part of that process.
        """
        if self.device.type == "cpu" and not checkpoint.sharded_tables(self.model):
            text = f"a process is gone: saving the state after step {self.progress.total_steps}"
            self.emit(Message(text, "warning"))
            recorder.save_last()

    def _result(self) -> TrainingResult:
        history, compiled, config = self.progress.history, self.step.compiled, self.config
        by_user = self.model.rows == "users"
        return TrainingResult(history, self.best, None if compiled is None else round(compiled.seconds, 3), {
            "parameters": self.model.num_parameters,
            "steps": self.progress.total_steps,
            "positive_weight": self.objective.positive_weight,
            "precision": self.step.precision,
            "device": self.device.type,
            "devices": self.ranks.world_size,
            "unit": unit_of(self.model),
            **({"chosen": dict(self.model.chosen)} if self.model.chosen else {}),
            "notes": notes(history, self.objective.monitor, early_stopping=bool(config.early_stopping), has_ranking=by_user),
        })  # fmt: skip


def train_part(model: Model, config: TrainConfig, context: TrainingContext, schema: Schema) -> None:
    """Train a model in place, for all epochs of the config; the caller's random state is unchanged.

    The context has interactions for a model of users, or else one batch of rows.

    Raises:
        TrainingError: The loss is not finite.
        DataError: No user has two items, for a model of users.
    """
    accumulated = config.gradient_accumulation_steps
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(config.seed)
        model.set_context(context)
        loader: EpochSteps
        balance = 1.0  # a batch of users has positives only
        if model.rows == "users":
            loader = UserLoader(
                context.interactions(), schema, batch_size=config.batch_size, seed=config.seed, device=model.device,
                parts=accumulated,
            )  # fmt: skip
        else:
            (rows,) = context.batches()
            positive = float(rows.labels[schema.label.name].mean())
            balance = (1 - positive) / positive if positive else 1.0
            loader = MemoryLoader(rows, batch_size=config.rows_of_a_step, seed=config.seed, parts=accumulated)
        objective = Objective.of(model, schema, config, balance=lambda: balance)
        for _ in Trainer(model, TrainingData(loader), config, objective=objective).events():
            pass
    model.eval()


def fit_closed_form(
    model: Model, data: PreparedData, context: TrainingContext, objective: Objective, run: TrainedRun, *,
    memory: int, emit: Emit,
) -> TrainingResult:  # fmt: skip
    """Fit a closed-form model on all interactions of train, and validate it in batches of a budget in MiB.

    Metrics and weights, the `best` checkpoint, go to the folder of the run.
    """
    name, started = model.name, time.perf_counter()
    with torch.no_grad():
        model.fit(context, progress=lambda done, total: emit(Progress(f"fit {name}", done, total, "parts")))
        seconds = time.perf_counter() - started
        model.set_context(context)
        model.eval()
        valid = _validated(model, data, objective, memory, emit)
    rows, left_out = data.rows("train"), None if model.left_out is None else asdict(model.left_out)
    record = EpochRecord(epoch=1, step=1, rows=rows, train_loss=None, valid=valid, seconds=seconds, waiting=0.0)
    Checkpoint(weights(model), {"epoch": 1, "metrics": asdict(record)}).save(run.checkpoint("best"))
    write_text(run.metrics, json.dumps({"event": "epoch", **asdict(record)}) + "\n")
    chosen = "".join(f", {option} {value:g} chosen on train" for option, value in model.chosen.items())
    figures = "".join(f", valid {metric} {value:.4f}" for metric, value in valid.items() if value is not None)
    emit(Message(f"{name} is fitted{chosen}{figures}", facts=asdict(record)))
    if model.left_out is not None:
        emit(Message(model.left_out.sentence(name), "warning", facts=left_out or {}))
    return TrainingResult([record], record, None, {
        "parameters": sum(buffer.numel() for buffer in model.buffers()),
        "steps": 0,
        "precision": "fp32",
        "device": model.device.type,
        "devices": 1,
        "left_out": left_out,
        "notes": [],
        "chosen": dict(model.chosen),
    })  # fmt: skip


def _validated(model: Model, data: PreparedData, objective: Objective, memory: int, emit: Emit) -> Figures:
    validation = Validation(data.rows("valid"), objective, Ranks())
    loader = validation_batches(data, model.device, memory=memory, ranks=Ranks())
    if loader is None:
        return {}
    for batch in loader:
        validation.add(model, batch)
        emit(Progress("validate", validation.rows, loader.num_rows))
    return validation.figures(model)
