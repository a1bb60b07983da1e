"""`recsys train`, in this process or in several: python -m recsys_cli.stages.train is the worker of a run with `train.devices`."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, TextIO

from recsys_cli.config import RunConfig, TrainConfig
from recsys_cli.events import Emit, Event, Message, ignore
from recsys_cli.models import kind_of
from recsys_cli.registry import AUTO
from recsys_cli.stages import StageResult
from recsys_cli.stages.auto import train_candidates
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.held_out_train import find_epochs, search_of
from recsys_cli.stages.run_selection import Selection, locked, run_key, select, train_lock
from recsys_cli.stages.trainer import announce_unused, fit_run, new_model
from recsys_cli.stages.warm_start import warm_start
from recsys_cli.training import hardware
from recsys_cli.training.launch import INTERRUPTED, error_line, event_line, launch, worker_session
from recsys_cli.training.member import Member
from recsys_cli.training.ranks import Ranks, local_process_group, process_group
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_manifest


def train(
    config: RunConfig, workspace: Workspace, *, resume: bool | None = False, force: bool = False, emit: Emit = ignore
) -> StageResult[TrainedRun]:
    """Train the model of a config, unless there is a finished run of it; or resume its latest unfinished run.

    With `resume` None, an unfinished run is resumed if there is one.

    The model `auto` trains several, resumes unfinished ones, and returns the run of the best; see `stages.auto`.

    Raises:
        MissingArtifactError: The data is not prepared, or there is nothing to resume.
        MissingExtraError: The package of a tracker is not installed.
        ConfigError: The model does not fit the data, or the device does not exist.
        DataError: A label is not 0 or 1, or a weight is negative or missing.
        TrainingError: The loss is not finite, or a checkpoint is unreadable.
        KeyboardInterrupt: Interrupted; the run can be resumed.
    """
    data = prepared_data(config, workspace)
    if config.model.name == AUTO:
        return train_candidates(train_on, data, config, workspace, force=force, emit=emit)
    return train_on(data, config, workspace, resume=resume, force=force, emit=emit)


def train_on(
    data: PreparedData, config: RunConfig, workspace: Workspace, *,
    resume: bool | None = False, force: bool = False, emit: Emit = ignore,
) -> StageResult[TrainedRun]:  # fmt: skip
    """Train on prepared data; see `train`."""
    with ExitStack() as stack:
        ranks = stack.enter_context(join_ranks(config))
        selected = None
        if ranks.is_first:
            key = run_key(config, data)
            stack.enter_context(workspace.lock(train_lock(key), emit=emit))
            selected = select(data, config, workspace, resume=resume, force=force, emit=emit)
            if not selected.up_to_date:
                stack.enter_context(locked(selected, config, workspace))
                data.verify()
        selected = Selection(*ranks.from_first(selected and astuple(selected)))
        run = workspace.run_named(selected.name)
        if not selected.up_to_date:
            if ranks.world_size == 1 and config.train.devices > 1:
                launch_ranks(run, data, config, workspace, resume=selected.resume, emit=emit)
            else:
                train_run(run, data, config, workspace, ranks=ranks, resume=selected.resume, emit=emit)
        elif ranks.is_first:
            announce_unused(run.manifest.get("unused_options", ()), config.model.name, emit)
    return StageResult(run, up_to_date=selected.up_to_date)


def train_run(
    run: TrainedRun, data: PreparedData, config: RunConfig, workspace: Workspace, *,
    ranks: Ranks, resume: bool, emit: Emit,
) -> None:  # fmt: skip
    """Train this rank's part of a run; the first rank writes the manifest."""
    started = time.perf_counter()
    emit = emit if ranks.is_first else ignore
    name, key = config.model.name, run_key(config, data)
    options, found = _with_epochs(run, data, config, key=key, ranks=ranks, resume=resume, emit=emit)
    model = new_model(data, config.model, options)
    own, carried = config.model_copy(update={"train": options}), None
    if model.rows != "all" and not run.checkpoint("last").is_file():  # `last` would replace the weights of a warm start
        carried = warm_start(model, own, data, workspace, emit=emit)
    result = fit_run(run, model, data, own, key=key, ranks=ranks, resume=resume, emit=emit, carried=carried)
    seconds = result.history[0].seconds if model.rows == "all" else time.perf_counter() - started
    if ranks.is_first:
        inputs: dict[str, Any] = {
            "data": {"key": data.key, "folder": data.folder.name}
            | {name: data.manifest[name] for name in ("forgotten",) if name in data.manifest},
            "continues": options.continue_from,
        }
        inputs["unused_options"] = model.unused_options(options, data.schema)
        summary = result.summary(monitor=options.monitor, seconds=seconds) | ({"held_out": found} if found else {})
        write_manifest(run.folder, "TrainedRun", {"key": key, "model": name, **inputs, **summary})


def _with_epochs(
    run: TrainedRun, data: PreparedData, config: RunConfig, *, key: str, ranks: Ranks, resume: bool, emit: Emit
) -> tuple[TrainConfig, dict[str, Any] | None]:
    """Return the train section with the number of epochs found on rows held out of train, if need be, and the figures."""
    options, rows, has_valid = config.train, kind_of(config.model.name).rows, data.rows("valid") > 0
    if has_valid or (rows == "all" and options.early_stopping is None):
        return options, None
    if options.searches_epochs(has_valid=has_valid) and not (rows == "users" and options.monitor == "loss"):
        found = find_epochs(run, data, config, key=key, ranks=ranks, resume=resume, emit=emit)
        if ranks.is_first:
            shutil.rmtree(search_of(run).folder, ignore_errors=True)  # a kill may have left it beside its result
        if found is not None:
            return options.model_copy(update={"epochs": found["epochs"], "early_stopping": None}), found
    unused = {"early stopping": options.early_stopping, "the plateau schedule": options.schedule.name == "plateau"}
    useless = "".join(f"{name} has no effect, " for name, is_set in unused.items() if is_set)
    if rows != "all" and (useless or options.recent is None):  # recent rows are learned in few epochs, as asked for
        text = f"the data has no valid split: {useless}{'and ' if useless else ''}the best checkpoint is the last"
        emit(Message(text, "warning"))
    return options, None


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
    launch("recsys_cli.stages.train", job, devices=devices, emit=emit)


def main() -> int:
    """Train this rank's part of a run, report to the parent process, and return the exit code."""
    with worker_session() as (job, out):
        try:
            _train_rank(job, out)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:  # the parent process raises it again
            _send(out, error_line(error))
            return 1
    return 0


def _train_rank(job: dict[str, Any], out: TextIO) -> None:
    config, workspace = RunConfig.model_validate(job["config"]), Workspace(Path(job["workspace"]))

    def emit(event: Event) -> None:
        _send(out, event_line(event))

    with join_ranks(config) as ranks:
        data, run = PreparedData(Path(job["data"])), workspace.run_named(job["run"])
        train_run(run, data, config, workspace, ranks=ranks, resume=job["resume"], emit=emit)


def _send(out: TextIO, line: str) -> None:
    with suppress(BrokenPipeError):  # the parent has ended, and the end of stdin interrupts this process
        out.write(line + "\n")


if __name__ == "__main__":
    code = main()
    os._exit(code)  # a normal exit would wait for GPU work that waits for a lost rank
