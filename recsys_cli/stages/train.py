"""`recsys train`: prepared data to a trained run."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import astuple

from recsys_cli.config import RunConfig
from recsys_cli.events import Emit, ignore
from recsys_cli.stages import Made
from recsys_cli.stages.choice import Chosen, choose, held, run_key
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.job import Job
from recsys_cli.training import hardware
from recsys_cli.training.distributed.environment import Member
from recsys_cli.training.distributed.launch import launch
from recsys_cli.training.distributed.ranks import Ranks, alone, joined
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


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
    with ExitStack() as stack:
        ranks = stack.enter_context(together(config))
        chosen = None
        if ranks.is_first:
            key = run_key(config, data)
            stack.enter_context(workspace.lock(f"train-{key[:16]}", emit=emit))
            chosen = choose(data, config, workspace, resume=resume, force=force, emit=emit)
            if not chosen.up_to_date:
                stack.enter_context(held(chosen, config, workspace))
                data.verify()
        chosen = Chosen(*ranks.from_first(chosen and astuple(chosen)))
        run = workspace.run_named(chosen.name)
        if not chosen.up_to_date:
            _start(Job(data, config, run, workspace, emit if ranks.is_first else ignore, ranks), resume=chosen.resume)
    return Made(run, up_to_date=chosen.up_to_date)


def together(config: RunConfig) -> AbstractContextManager[Ranks]:
    """Join the processes that torchrun has started; this one may be alone."""
    member = Member.from_environment()
    if member is not None:
        return joined(member, hardware.device(config.train.device, member))
    if config.model.embedding.placement == "sharded" and config.train.devices == 1:
        return alone(hardware.device(config.train.device))
    return nullcontext(Ranks())


def _start(job: Job, *, resume: bool) -> None:
    """Do the job in this process, or in as many as the config says."""
    options, devices = job.config.train, job.config.train.devices
    if job.ranks.world_size > 1 or devices == 1:
        job.run(resume=resume)
        return
    hardware.device(options.device, Member(0, devices, 0, devices))  # so many GPUs have to be there
    told = {
        "config": job.config.model_dump(mode="json"),
        "data": str(job.data.folder.absolute()),
        "run": job.target.folder.name,
        "workspace": str(job.workspace.root.absolute()),
        "resume": resume,
    }
    launch("recsys_cli.stages.rank", told, devices=devices, emit=job.emit)
