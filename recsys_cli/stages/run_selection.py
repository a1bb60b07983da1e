"""Selection of the run for a call of `recsys train`: new, resumed or up to date; and the key of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from recsys_cli.config import RunConfig, dump, yaml12
from recsys_cli.config.load import model_config_type, spelled_out
from recsys_cli.errors import MissingArtifactError
from recsys_cli.events import Emit, Message
from recsys_cli.stages import tell_version
from recsys_cli.stages.keys import code_of_metrics, code_of_model
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, key_of, run_lock, whole, write_text

_HOW = {"model": {"embedding"}, "train": {"device", "checkpoint_steps", "trackers", "devices"}}
"""What of the sections is how, not what: no part of the key, so that a run may be resumed on another device."""

_FORMAT = 2
"""Version of what training makes of any model; a model whose fix changes its weights raises `format` of its Config."""


def run_key(config: RunConfig, data: PreparedData) -> str:
    """Return the hash of the inputs of a run: model, training options and data."""
    model, train = (
        section.model_dump(mode="json", exclude=_HOW[name])
        for name, section in (("model", spelled_out(config.model)), ("train", config.train))
    )
    version = getattr(model_config_type(config.model.name), "format", 1)
    code = [*code_of_model(config.model.name), *code_of_metrics([config.train.monitor])]
    return key_of("run", _FORMAT, version, code, model, train, data.key)


@dataclass(frozen=True)
class Selection:
    """The selected run.

    Attributes:
        name: Name of its folder.
        resume: Whether to continue it.
        up_to_date: Whether it is finished.
    """

    name: str
    resume: bool = False
    up_to_date: bool = False


def select(
    data: PreparedData, config: RunConfig, workspace: Workspace, *, resume: bool, force: bool, emit: Emit
) -> Selection:
    """Select the run for a call; a new one gets its folder.

    Args:
        data: Prepared.
        config: The experiment.
        workspace: Where the runs are.
        resume: Go on with the latest unfinished run of this config.
        force: Make a new one although there is a finished run.
        emit: Receives a message about an unfinished run.

    Raises:
        MissingArtifactError: There is nothing to resume, or the run to continue is not there.
        MissingExtraError: Something that the config asks for is not installed.
        ConfigError: What the config asks for is not there.
    """
    key = run_key(config, data)
    unfinished = unfinished_run(workspace, key)
    finished = [run for run in workspace.runs() if run.is_made(key)]
    if resume and unfinished is not None:
        return Selection(unfinished.folder.name, resume=True)
    if finished and not force:
        tell_version(finished[-1], emit)
        return Selection(finished[-1].folder.name, up_to_date=True)
    if resume:
        raise _nothing_to_resume(workspace, config)
    if unfinished is not None:
        emit(Message(f"there is an unfinished run of this config, {unfinished.folder.name}: --resume goes on with it"))
    _require(config, workspace)
    return Selection(_new_run(workspace, config, key).folder.name)


def _require(config: RunConfig, workspace: Workspace) -> None:
    """Raise for anything missing before there is a run."""
    # These load torch, and `recsys status` needs only the keys.
    from recsys_cli.models import kind_of
    from recsys_cli.models.torchrec_releases import require_torchrec
    from recsys_cli.stages.warm_start import start_of
    from recsys_cli.training import hardware
    from recsys_cli.training.trackers import find

    start_of(config.train.continue_from, workspace)
    kind_of(config.model.name)
    find(config.train.trackers)
    if config.model.embedding.placement == "sharded":
        require_torchrec(config.train.embedding_optimizer, hardware.device(config.train.device).type)


@contextmanager
def held(selected: Selection, config: RunConfig, workspace: Workspace) -> Iterator[None]:
    """Keep other processes from the run's folder; a new run that fails before anything was measured leaves none."""
    run = workspace.run_named(selected.name)
    with workspace.lock(run_lock(run), timeout=1):
        if not selected.resume:
            write_text(run.config, dump(config))
        try:
            yield
        except Exception:
            if not (selected.resume or run.metrics.is_file() or run.checkpoint("last").is_file()):
                workspace.remove(run)
            raise


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
    """Return the latest run with a key that has no manifest; without a checkpoint yet, its name has to tell the key."""
    runs = [run for run in workspace.runs() if not run.exists and run.folder.name.endswith(key[:8])]
    for run in reversed(runs):
        last = run.checkpoint("last")
        if not last.is_file() or _key_in(last) == key:
            return run
    return None


def _key_in(checkpoint: Path) -> str | None:
    """Return the key of a `last` checkpoint's run, from its header alone; None where it cannot be read."""
    try:
        with safe_open(checkpoint, framework="np") as file:  # framework="pt" would load torch
            return str(json.loads((file.metadata() or {})["recsys"])["key"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _nothing_to_resume(workspace: Workspace, config: RunConfig) -> MissingArtifactError:
    others = [run for run in workspace.runs() if not run.exists and run.checkpoint("last").is_file()]
    if not others:
        return MissingArtifactError(f"there is nothing to resume in {workspace.root}", hint="recsys train")
    with whole(others[-1].config, hint="recsys train --force"):
        then = yaml12.parse(others[-1].config.read_text(encoding="utf-8"))
    now = config.model_dump(mode="json")
    changed = [
        f"{section}.{option} is {now[section].get(option)} and was {then[section].get(option)}"
        for section, how in _HOW.items()
        for option in sorted({*now[section], *then[section]} - how)
        if now[section].get(option) != then[section].get(option)
    ]
    what = "; ".join(changed) or "its data is another"
    return MissingArtifactError(
        f"the unfinished run {others[-1].folder.name} was started with another config: {what}",
        hint="give the config that it was started with, or train anew without --resume",
    )
