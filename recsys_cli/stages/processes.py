"""Processes of a training run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from recsys_cli.config import RunConfig
from recsys_cli.events import Emit
from recsys_cli.training import hardware
from recsys_cli.training.launch import launch
from recsys_cli.training.member import Member
from recsys_cli.training.ranks import Ranks, local_process_group, process_group
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


def join_ranks(config: RunConfig) -> AbstractContextManager[Ranks]:
    """Join the process group of torchrun or `launch_ranks`; a single process needs one only for sharded tables."""
    member = Member.from_environment()
    if member is not None:
        return process_group(member, hardware.device(config.train.device, member))
    if config.model.embedding.placement == "sharded" and config.train.devices == 1:
        return local_process_group(hardware.device(config.train.device))
    return nullcontext(Ranks())


def launch_ranks(
    run: TrainedRun, data: PreparedData, config: RunConfig, workspace: Workspace, *, resume: bool, emit: Emit
) -> None:
    """Train a run in `train.devices` worker processes."""
    devices = config.train.devices
    hardware.device(config.train.device, Member(0, devices, 0, devices))  # fails early with fewer GPUs
    job = {
        "config": config.model_dump(mode="json"),
        "data": str(data.folder.absolute()),
        "run": run.folder.name,
        "workspace": str(workspace.root.absolute()),
        "resume": resume,
    }
    launch("recsys_cli.stages.rank", job, devices=devices, emit=emit)
