"""One run, or one process's part in it: the model with everything that it is trained with, from its start to its manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch

from recsys_cli.config import RunConfig, TrainConfig
from recsys_cli.config.load import model_config_type, train_defaults
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.events import Emit, Message, Progress, Unit
from recsys_cli.loader import Loader, Users, check_targets, scales
from recsys_cli.models import build, trained
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.stages.choice import run_key
from recsys_cli.stages.continued import carry_over, start_of
from recsys_cli.stages.fit import fit
from recsys_cli.stages.goal import goal_or_usual
from recsys_cli.stages.summary import summary
from recsys_cli.training import hardware, optimizers
from recsys_cli.training.allocator import keep_freed_memory
from recsys_cli.training.distributed.ranks import LostRankError, Ranks
from recsys_cli.training.events import EpochEnded, Stepped, TrainingEvent
from recsys_cli.training.interrupt import deferred_interrupt
from recsys_cli.training.loop import Training
from recsys_cli.training.notes import notes
from recsys_cli.training.recorder import Recorder
from recsys_cli.training.trackers import Series, Trackers, find
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_manifest

_VALID_BATCH = 32_768
"""Rows scored at a time while validating; changes nothing but speed and memory."""


@dataclass
class Job:
    """One run of the stage, or this process's part in it."""

    data: PreparedData
    config: RunConfig
    target: TrainedRun
    workspace: Workspace
    emit: Emit
    ranks: Ranks

    def run(self, *, resume: bool) -> None:
        """Train to the end and write the manifest."""
        started = time.perf_counter()
        model = self.model()
        if model.rows == "all":
            manifest = fit(self, model)
            write_manifest(self.target.folder, "TrainedRun", manifest)
            return
        begun = self.target.checkpoint("last").is_file()
        training = self.training(model, memory=self.config.train.memory, begun=begun)
        recorder = Recorder(
            self.target, training, key=run_key(self.config, self.data),
            checkpoint_steps=self.config.train.checkpoint_steps, trackers=self._trackers(),
        )  # fmt: skip
        seen = {}
        if resume:
            seen = recorder.resume()
            self.emit(Message(f"resuming {self.target.folder.name} at step {training.progress.total_steps + 1}"))
        self.ranks.agree({"the run": run_key(self.config, self.data), "the step": training.progress.total_steps})
        self._train(training, recorder, seen)
        if (compiled := training.step.compiled) is not None:
            self.emit(Message(f"{compiled.seconds:.1f} s of that went into compiling"))
        if self.ranks.is_first:
            write_manifest(self.target.folder, "TrainedRun", self._manifest(training, time.perf_counter() - started))

    def _train(self, training: Training, recorder: Recorder, seen: Mapping[str, int]) -> None:
        series = Series(self.target, self.config.model_dump(mode="json"), training.progress.total_steps)
        with recorder.trackers.following(series, seen=seen), _interruptible(recorder, self.ranks) as check:
            try:
                for event in training.run():
                    recorder.record(event)
                    self._tell(event, training)
                    check()
            except LostRankError:
                # A GPU may have computed with what never came, and tables that were sharded are not whole any more.
                if training.device.type == "cpu" and self.config.model.embedding.placement != "sharded":
                    self.emit(
                        Message(f"a process is gone: keeping what step {training.progress.total_steps} left", "warning")
                    )
                    recorder.save_last()
                raise

    def _trackers(self) -> Trackers:
        return Trackers(find(self.config.train.trackers if self.ranks.is_first else ()), self.emit)

    def model(self) -> Model:
        """Return the model at its start, on its device."""
        options, wanted = self.config.train, self.config.model
        check_targets(self.data)
        device = hardware.device(options.device)
        keep_freed_memory()
        torch.manual_seed(options.seed)
        placement = wanted.embedding.placement
        model = build(wanted.name, wanted.options, self.data.schema, sparse=options.sparse, placement=placement)
        if model.probabilistic:
            model.set_scales({name: astuple(scale) for name, scale in scales(self.data).items()})
        return model.to(device)

    def training(self, model: Model, *, memory: int, begun: bool) -> Training:
        """Return everything that a model is trained with.

        Args:
            model: At its start.
            memory: Budget of the loaders in MiB.
            begun: Whether a checkpoint is going to replace its weights.

        Raises:
            ConfigError: It is not trained step by step.
        """
        options, device = self.config.train, model.device
        model = trained(model)
        start = None if begun else start_of(self.config, self.workspace)
        if start is not None:
            carry_over(model, start, self.config, self.data, emit=self.emit)
        self.ranks.prepare(model)
        if options.ema and options.sparse and not optimizers.split(model)[1]:
            text = "train.ema averages nothing here: the model is tables alone, and train.sparse leaves tables out"
            self.emit(Message(text, "warning"))
        known = make_context(self.data, "train", device=device)
        model.set_context(known)
        train = self._batches(model, known, memory=memory)
        options = options.model_copy(update={"batch_size": train.batch_size})
        self._tell_share(options, train.step_rows(0), _counted(model))
        valid = self.valid(device, memory=memory)
        if valid is None:
            needs = {"early stopping": options.early_stopping, "the plateau": options.schedule.name == "plateau"}
            what = "".join(f"{name} has nothing to go by, " for name, wanted in needs.items() if wanted)
            text = f"the data has no valid split: {what}{'and ' if what else ''}the best checkpoint is the last"
            self.emit(Message(text, "warning"))
        elif options.monitor == "loss" and model.rows == "users":
            text = "a model that learns from users has no loss of the valid split, so train.monitor=loss keeps the last epoch"
            self.emit(Message(f"{text}; train.monitor=ndcg@10 would choose", "warning"))
        default = train_defaults(model_config_type(self.config.model.name)).get("monitor")
        goal = goal_or_usual(options, self.data, model, default=default, emit=self.emit)
        return Training(model, options, train, valid, goal=goal, ranks=self.ranks)

    def _batches(self, model: Model, known: TrainingContext, *, memory: int) -> Loader | Users:
        """Return this rank's share of what a model learns from: interactions, or the users who had them."""
        options, rank, ranks = self.config.train, self.ranks.rank, self.ranks.world_size
        if model.rows == "users":
            return Users(
                known.interactions(), self.data.schema, batch_size=options.batch_size, seed=options.seed, device=model.device,
                rank=rank, world_size=ranks, parts=options.accumulate,
            )  # fmt: skip
        return Loader(
            self.data, "train", batch_size=options.rows_of_a_step, shuffle=True, seed=options.seed, device=model.device,
            memory=memory, rank=rank, world_size=ranks, parts=options.accumulate,
        )  # fmt: skip

    def valid(self, device: torch.device, *, memory: int) -> Loader | None:
        """Return the rows of the valid split, this rank's share of each batch; None where there is none."""
        if not self.data.rows("valid"):
            return None
        rank, ranks = self.ranks.rank, self.ranks.world_size
        return Loader(
            self.data, "valid", batch_size=_VALID_BATCH * ranks, device=device, memory=memory, rank=rank, world_size=ranks
        )  # fmt: skip

    def _tell_share(self, options: TrainConfig, rows: int, unit: Unit) -> None:
        number = self.ranks.world_size
        rates = "learning rates stay as they are"
        if options.scale_learning_rate != "none":
            rates = (
                f"learning rates are multiplied by {options.rate_factor:.4g}, because batch_size is {options.batch_size:,} "
                f"and they are meant for {options.reference_batch_size:,} (scale_learning_rate is {options.scale_learning_rate})"
            )
        if number > 1:
            share = f"{number} processes share the {rows:,} {unit} of a step, about {rows // number:,} for each"
            self.emit(Message(f"{share}; {rates}"))
        elif options.rate_factor != 1:
            self.emit(Message(rates))

    def _tell(self, event: TrainingEvent, training: Training) -> None:
        epoch = f"{event.record.epoch if isinstance(event, EpochEnded) else event.epoch}/{self.config.train.epochs}"
        if isinstance(event, Stepped):
            unit = _counted(training.model)
            fields = {
                "loss": f"{event.loss:.4f}",
                f"{unit}/s": f"{event.rows / max(event.seconds, 1e-9):,.0f}",
                "waiting": f"{event.waiting / max(event.seconds, 1e-9):.0%}",
            }
            self.emit(Progress(f"train epoch {epoch}", event.rows, training.train.num_rows, unit, fields))
        elif isinstance(event, EpochEnded):
            record = event.record
            figures = [f", valid {name} {value:.4f}" for name, value in record.valid.items() if value is not None]
            best = " (best)" if event.best and figures else ""
            text = f"epoch {epoch}: loss {record.train_loss:.4f}{''.join(figures)}{best}"
            self.emit(Message(text, facts=asdict(record)))
        elif training.valid is not None:
            self.emit(Progress(f"validate epoch {epoch}", event.rows, training.valid.num_rows))

    def _manifest(self, training: Training, wall: float) -> dict[str, Any]:
        compiled = training.step.compiled
        return summary(
            self.config, self.data, training.progress.history, training.best,
            parameters=training.model.num_parameters,
            steps=training.progress.total_steps,
            positive_weight=training.goal.positive_weight,
            last_session=wall,
            compiling=None if compiled is None else round(compiled.seconds, 3),
            precision=training.step.precision,
            device=training.device.type,
            devices=self.ranks.world_size,
            unit=_counted(training.model),
            notes=list(notes(training)),
        )  # fmt: skip


def _counted(model: Model) -> Unit:
    """Return what a model learns from, as a bar counts it."""
    return "users" if model.rows == "users" else "rows"


@contextmanager
def _interruptible(recorder: Recorder, ranks: Ranks) -> Iterator[Any]:
    """Give a function to call between steps: after Ctrl-C on any rank it saves and raises KeyboardInterrupt on all."""
    with deferred_interrupt() as interrupted:

        def check() -> None:
            if ranks.any(interrupted()):
                recorder.save_last()
                raise KeyboardInterrupt

        yield check
