"""`recsys train`: prepared data to a trained run."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import astuple

from recsys_cli.config import RunConfig
from recsys_cli.events import Emit, ignore
from recsys_cli.stages import Made
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.run_selection import Selection, held, run_key, select
from recsys_cli.stages.trainer import closed_form_trainer_of, new_model, trainer_of
from recsys_cli.stages.warm_start import warm_start
from recsys_cli.training import hardware
from recsys_cli.training.distributed.environment import Member
from recsys_cli.training.distributed.launch import launch
from recsys_cli.training.distributed.ranks import Ranks, local_process_group, process_group
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_manifest


def train(
    config: RunConfig, workspace: Workspace, *, resume: bool = False, force: bool = False, emit: Emit = ignore
) -> Made[TrainedRun]:
    """Train the model of a config, unless that is done already.

    Args:
        config: The experiment.
        workspace: Where the prepared data is and the run goes.
        resume: Go on with the latest unfinished run of this config.
        force: Train again although there is a finished run.
        emit: Receives messages and progress.

    Raises:
        MissingArtifactError: The data is not prepared, or there is nothing to resume.
        MissingExtraError: The package of a tracker is not installed.
        ConfigError: The model does not fit the data, or the device does not exist.
        DataError: A label is not 0 or 1, or a weight is negative or missing.
        TrainingError: The loss is not finite, or a checkpoint cannot be read.
        KeyboardInterrupt: It was interrupted; the run is kept and can be resumed.
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
    with ExitStack() as stack:
        ranks = stack.enter_context(join_ranks(config))
        selected = None
        if ranks.is_first:
            key = run_key(config, data)
            stack.enter_context(workspace.lock(f"train-{key[:16]}", emit=emit))
            selected = select(data, config, workspace, resume=resume, force=force, emit=emit)
            if not selected.up_to_date:
                stack.enter_context(held(selected, config, workspace))
                data.verify()
        selected = Selection(*ranks.from_first(selected and astuple(selected)))
        run = workspace.run_named(selected.name)
        if not selected.up_to_date:
            if ranks.world_size == 1 and config.train.devices > 1:
                _launch(run, data, config, workspace, resume=selected.resume, emit=emit)
            else:
                train_run(run, data, config, workspace, ranks=ranks, resume=selected.resume, emit=emit)
    return Made(run, up_to_date=selected.up_to_date)


def join_ranks(config: RunConfig) -> AbstractContextManager[Ranks]:
    """Join the processes of a run that torchrun or `train.devices` started; a single process needs none."""
    member = Member.from_environment()
    if member is not None:
        return process_group(member, hardware.device(config.train.device, member))
    if config.model.embedding.placement == "sharded" and config.train.devices == 1:
        return local_process_group(hardware.device(config.train.device))
    return nullcontext(Ranks())


def train_run(
    run: TrainedRun,
    data: PreparedData,
    config: RunConfig,
    workspace: Workspace,
    *,
    ranks: Ranks,
    resume: bool,
    emit: Emit,
) -> None:
    """Train a run to its manifest in this process, or do this rank's part of it."""
    started = time.perf_counter()
    emit = emit if ranks.is_first else ignore
    name, key = config.model.name, run_key(config, data)
    model = new_model(data, config.model, config.train)
    if model.rows == "all":
        result = closed_form_trainer_of(model, name, data, config.train, ranks=ranks, emit=emit).fit(run)
        seconds = result.history[0].seconds
    else:
        if not run.checkpoint("last").is_file():  # its weights would replace these
            warm_start(model, name, data, config.train.continue_from, workspace, emit=emit)
        trainer = trainer_of(model, name, data, config.train, ranks=ranks, emit=emit)
        result = trainer.fit(run, key=key, settings=config.model_dump(mode="json"), resume=resume)
        seconds = time.perf_counter() - started
    if ranks.is_first:
        manifest = {
            "key": key,
            "model": name,
            "data": {"key": data.key, "folder": data.folder.name},
            "continues": config.train.continue_from,
            **result.summary(monitor=config.train.monitor, seconds=seconds),
        }
        write_manifest(run.folder, "TrainedRun", manifest)


def _launch(
    run: TrainedRun, data: PreparedData, config: RunConfig, workspace: Workspace, *, resume: bool, emit: Emit
) -> None:
    """Train a run in `train.devices` new processes."""
    devices = config.train.devices
    hardware.device(config.train.device, Member(0, devices, 0, devices))  # so many GPUs have to be there
    job = {
        "config": config.model_dump(mode="json"),
        "data": str(data.folder.absolute()),
        "run": run.folder.name,
        "workspace": str(workspace.root.absolute()),
        "resume": resume,
    }
    launch("recsys_cli.stages.rank", job, devices=devices, emit=emit)
