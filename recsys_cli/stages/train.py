"""`recsys train`: prepared data to a trained run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
import yaml

from recsys_cli.config import RunConfig, dump
from recsys_cli.errors import MissingArtifactError
from recsys_cli.events import Emit, Message, Progress, ignore
from recsys_cli.loader import Loader, check_targets
from recsys_cli.models import build
from recsys_cli.stages import Made
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.goal import goal_of
from recsys_cli.training import hardware
from recsys_cli.training.checkpoint import key_in
from recsys_cli.training.events import EpochEnded, Stepped, TrainingEvent
from recsys_cli.training.interrupt import deferred_interrupt
from recsys_cli.training.loop import Training
from recsys_cli.training.recorder import Recorder
from recsys_cli.training.trackers import Series, Trackers, find
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, key_of, write_manifest, write_text

_VALID_BATCH = 32_768
"""Rows scored at a time while validating; changes nothing but speed and memory."""
_HOW = {"device", "memory", "checkpoint_steps", "trackers", "embedding"}
"""What of train and model is how, not what: no part of the key, so that a run may be resumed on another device."""


def train(
    config: RunConfig, workspace: Workspace, *, resume: bool = False, force: bool = False, emit: Emit = ignore
) -> Made[TrainedRun]:
    """Train the model of a config, unless that is done already.

    Args:
        config: The experiment.
        workspace: Where the prepared data is and the run goes.
        resume: Go on with the latest unfinished run of this config.
        force: Train again although there is a finished run.
        emit: Is told how it goes.

    Raises:
        MissingArtifactError: The data is not prepared, or there is nothing to resume.
        MissingExtraError: What a tracker writes with is not installed.
        ConfigError: The model does not fit the data, or the device is not there.
        DataError: A label is not 0 or 1, or a weight is negative or missing.
        TrainingError: The loss is not finite, or a checkpoint cannot be read.
        KeyboardInterrupt: It was interrupted; what was trained is kept and can be resumed.
    """
    return train_on(prepared_data(config, workspace), config, workspace, resume=resume, force=force, emit=emit)


def train_on(
    data: PreparedData,
    config: RunConfig,
    workspace: Workspace,
    *,
    resume: bool = False,
    force: bool = False,
    emit: Emit = ignore,
) -> Made[TrainedRun]:
    """Train on given data; see `train`."""
    key = run_key(config, data)
    unfinished = unfinished_run(workspace, key)
    finished = [run for run in workspace.runs() if run.exists and run.key == key]
    if resume and unfinished is not None:
        with workspace.lock(f"run-{unfinished.folder.name}", timeout=1):
            _Job(data, config, unfinished, key, emit).run(resume=True)
        return Made(unfinished, up_to_date=False)
    if finished and not force:
        return Made(finished[-1], up_to_date=True)
    if resume:
        raise _nothing_to_resume(workspace, config)
    if unfinished is not None:
        emit(Message(f"there is an unfinished run of this config, {unfinished.folder.name}: --resume goes on with it"))
    find(config.train.trackers)  # one that is missing is told of before there is a run
    run = _new_run(workspace, config, key)
    with workspace.lock(f"run-{run.folder.name}", timeout=1):
        write_text(run.config, dump(config))
        _Job(data, config, run, key, emit).run(resume=False)
    return Made(run, up_to_date=False)


def run_key(config: RunConfig, data: PreparedData) -> str:
    """Return what a run depends on: the model, how it is trained, and the data."""
    model = config.model.model_dump(mode="json", exclude=_HOW)
    return key_of("run", model, config.train.model_dump(mode="json", exclude=_HOW), data.key)


@dataclass
class _Job:
    """One run of the stage."""

    data: PreparedData
    config: RunConfig
    target: TrainedRun
    key: str
    emit: Emit

    def run(self, *, resume: bool) -> None:
        """Train to the end and write the manifest."""
        started = time.perf_counter()
        training = self._training(memory=self._memory(resume=resume))
        steps = self.config.train.checkpoint_steps
        trackers = Trackers(find(self.config.train.trackers), self.emit)
        recorder = Recorder(self.target, training, key=self.key, checkpoint_steps=steps, trackers=trackers)
        seen = {}
        if resume:
            seen = recorder.resume()
            self.emit(Message(f"resuming {self.target.folder.name} at step {training.progress.total_steps + 1}"))
        series = Series(self.target, self.config.model_dump(mode="json"), training.progress.total_steps)
        with trackers.following(series, seen=seen), _interruptible(recorder) as check:
            for event in training.run():
                recorder.record(event)
                self._tell(event, training)
                check()
        write_manifest(self.target.folder, "TrainedRun", self._manifest(training, time.perf_counter() - started))

    def _training(self, *, memory: int) -> Training:
        options, schema = self.config.train, self.data.schema
        check_targets(self.data)
        device = hardware.device(options.device)
        torch.manual_seed(options.seed)
        wanted = self.config.model
        model = build(
            wanted.name, wanted.options, schema, sparse=options.sparse, placement=wanted.embedding.placement
        ).to(device)
        train = Loader(
            self.data, "train", batch_size=options.batch_size, shuffle=True, seed=options.seed, device=device, memory=memory
        )  # fmt: skip
        valid = None
        if self.data.rows("valid"):
            valid = Loader(self.data, "valid", batch_size=_VALID_BATCH, device=device, memory=memory)
        else:
            needs = {"early stopping": options.early_stopping, "the plateau": options.schedule.name == "plateau"}
            what = "".join(f"{name} has nothing to go by, " for name, wanted in needs.items() if wanted)
            text = f"the data has no valid split: {what}{'and ' if what else ''}the best checkpoint is the last"
            self.emit(Message(text, "warning"))
        return Training(model, options, train, valid, goal=goal_of(options, self.data, device=device, emit=self.emit))

    def _memory(self, *, resume: bool) -> int:
        """Return the loader's budget: a streamed split's order depends on it, so a resumed run keeps the one it had."""
        if not resume:
            return self.config.train.memory
        return int(yaml.safe_load(self.target.config.read_text(encoding="utf-8"))["train"]["memory"])

    def _tell(self, event: TrainingEvent, training: Training) -> None:
        epoch = f"{event.record.epoch if isinstance(event, EpochEnded) else event.epoch}/{self.config.train.epochs}"
        if isinstance(event, Stepped):
            fields = {
                "loss": f"{event.loss:.4f}",
                "rows/s": f"{event.rows / max(event.seconds, 1e-9):,.0f}",
                "waiting": f"{event.waiting / max(event.seconds, 1e-9):.0%}",
            }
            self.emit(Progress(f"train epoch {epoch}", event.rows, training.train.num_rows, fields=fields))
        elif isinstance(event, EpochEnded):
            record = event.record
            figures = [f", valid {name} {value:.4f}" for name, value in record.valid.items() if value is not None]
            best = " (best)" if event.best and figures else ""
            text = f"epoch {epoch}: loss {record.train_loss:.4f}{''.join(figures)}{best}"
            self.emit(Message(text, facts=asdict(record)))
        elif training.valid is not None:
            self.emit(Progress(f"validate epoch {epoch}", event.rows, training.valid.num_rows))

    def _manifest(self, training: Training, wall: float) -> dict[str, Any]:
        history, best = training.progress.history, training.best
        seconds, rows = sum(record.seconds for record in history), sum(record.rows for record in history)
        return {
            "key": self.key,
            "model": self.config.model.name,
            "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
            "data": {"key": self.data.key, "folder": self.data.folder.name},
            "rows": rows,
            "steps": training.progress.total_steps,
            "epochs": len(history),
            "best_epoch": best.epoch if best else None,
            "valid": (best.valid or None) if best else None,
            "history": [asdict(record) for record in history],
            "seconds": {"train": round(seconds, 3), "last_session": round(wall, 3)},
            "rows_per_second": round(rows / max(seconds, 1e-9)),
            "waiting_share": round(sum(record.waiting for record in history) / max(seconds, 1e-9), 4),
            "precision": training.step.precision,
            "device": str(training.device),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "peak_memory": hardware.peak_memory(),
        }


@contextmanager
def _interruptible(recorder: Recorder) -> Iterator[Any]:
    """Give a function to call between steps: after Ctrl-C it saves and raises KeyboardInterrupt."""
    with deferred_interrupt() as interrupted:

        def check() -> None:
            if interrupted():
                recorder.save_last()
                raise KeyboardInterrupt

        yield check


def _new_run(workspace: Workspace, config: RunConfig, key: str) -> TrainedRun:
    """Make the folder of a new run; of two processes in the same second, one waits for the next."""
    while True:
        run = workspace.new_run(config.model.name, key)
        try:
            run.folder.mkdir(parents=True)
        except FileExistsError:
            time.sleep(0.1)
        else:
            return run


def unfinished_run(workspace: Workspace, key: str) -> TrainedRun | None:
    """Return the latest run with a key that has a checkpoint and no manifest."""
    runs = [run for run in workspace.runs() if not run.exists and run.folder.name.endswith(key[:8])]
    return next((run for run in reversed(runs) if key_in(run.checkpoint("last")) == key), None)


def _nothing_to_resume(workspace: Workspace, config: RunConfig) -> MissingArtifactError:
    others = [run for run in workspace.runs() if not run.exists and run.checkpoint("last").is_file()]
    if not others:
        return MissingArtifactError(f"there is nothing to resume in {workspace.root}", hint="recsys train")
    then = yaml.safe_load(others[-1].config.read_text(encoding="utf-8"))
    now = config.model_dump(mode="json")
    changed = [
        f"{section}.{option} is {now[section].get(option)} and was {then[section].get(option)}"
        for section in ("model", "train")
        for option in sorted({*now[section], *then[section]} - _HOW)
        if now[section].get(option) != then[section].get(option)
    ]
    what = "; ".join(changed) or "its data is another"
    return MissingArtifactError(
        f"the unfinished run {others[-1].folder.name} was started with another config: {what}",
        hint="give the config that it was started with, or train anew without --resume",
    )
