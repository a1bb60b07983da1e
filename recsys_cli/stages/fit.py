"""A run of a model that learns all at once: no steps, one line of metrics, and the same files as any other run."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.events import Message, Progress
from recsys_cli.metrics.label_task import TASKS
from recsys_cli.models.model import Model
from recsys_cli.stages.goal import goal_of
from recsys_cli.stages.summary import summary
from recsys_cli.training.checkpoint import Checkpoint, weights
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.events import EpochRecord
from recsys_cli.training.goal import Figures, Goal
from recsys_cli.training.validation import Validation
from recsys_cli.workspace import write_text

if TYPE_CHECKING:
    from recsys_cli.stages.job import Job


def fit(job: Job, model: Model) -> dict[str, Any]:
    """Fit a model, measure it on the valid split, and keep it as the best checkpoint.

    Args:
        job: The run.
        model: As it was built.

    Returns:
        What the run's manifest says.

    Raises:
        ConfigError: Several processes are asked for, or a run to continue.
    """
    config, data = job.config, job.data
    name = config.model.name
    if job.ranks.world_size > 1 or config.train.continue_from is not None:
        raise ConfigError(
            f"{name} learns all at once, in one process and from nothing",
            hint="train.devices=1, and no train.continue_from",
        )
    known = make_context(data, "train", device=model.device, memory=config.train.memory)
    goal = _goal(job, model)
    started = time.perf_counter()
    with torch.no_grad():
        model.fit(known, progress=lambda done, total: job.emit(Progress(f"fit {name}", done, total, "parts")))
        seconds = time.perf_counter() - started
        model.set_context(known)
        valid = _validated(job, model.eval(), Validation(data.rows("valid"), goal, Ranks()))
    rows = data.rows("train")
    record = EpochRecord(epoch=1, step=1, rows=rows, train_loss=None, valid=valid, seconds=seconds, waiting=0.0)
    Checkpoint(weights(model), {"epoch": 1, "metrics": asdict(record)}).save(job.target.checkpoint("best"))
    write_text(job.target.metrics, json.dumps({"event": "epoch", **asdict(record)}) + "\n")
    figures = "".join(f", valid {figure} {value:.4f}" for figure, value in valid.items() if value is not None)
    chosen = "".join(f", {option} {value:g} chosen on train" for option, value in model.chosen.items())
    job.emit(Message(f"{name} is fitted{chosen}{figures}", facts=asdict(record)))
    if model.left_out is not None:
        job.emit(Message(model.left_out.sentence(name), "warning", facts=asdict(model.left_out)))
    return summary(
        config, data, [record], record,
        parameters=sum(buffer.numel() for buffer in model.buffers()),
        steps=0,
        last_session=seconds,
        compiling=None,
        precision="fp32",
        device=model.device.type,
        devices=1,
        left_out=asdict(model.left_out) if model.left_out is not None else None,
        notes=[],
        chosen=dict(model.chosen),
    )  # fmt: skip


def _goal(job: Job, model: Model) -> Goal:
    """Return what to measure; a ranking that this data has not is left out, because there are no epochs to choose from by it."""
    try:
        return goal_of(job.config.train, job.data, model, emit=job.emit)
    except ConfigError as error:
        job.emit(Message(f"{error.message}, so it is not measured after fitting", "warning"))
        usual = TASKS[job.data.schema.label.task].default.name
        options = job.config.train.model_copy(update={"monitor": usual})
        return goal_of(options, job.data, model, emit=job.emit)


def _validated(job: Job, model: Model, validation: Validation) -> Figures:
    loader = job.valid(model.device, memory=job.config.train.memory)
    if loader is None:
        return {}
    for batch in loader:
        validation.add(model, batch)
        job.emit(Progress("validate", validation.rows, loader.num_rows))
    return validation.figures(model)
