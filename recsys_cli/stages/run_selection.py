"""Selection of the run for `recsys train`: new, resumed or up to date."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from recsys_cli.config import RunConfig, dump, yaml12
from recsys_cli.config.load import model_config, model_config_type, spelled_out
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.events import Emit, Message
from recsys_cli.stages import report_other_version
from recsys_cli.stages.keys import code_of_metrics, code_of_model
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, key_of, run_lock, whole, write_text

_NOT_IN_KEY = {"model": {"embedding"}, "train": {"device", "checkpoint_steps", "trackers", "devices"}}
"""Options outside of the key by section: a run may be resumed with other values, as on another device."""

_FORMAT = 2
"""Version of the training results of all models; a fix of one model raises `format` of its Config."""


def run_key(config: RunConfig, data: PreparedData) -> str:
    """Return the hash of model, training options and data."""
    model, train = (
        section.model_dump(mode="json", exclude=_NOT_IN_KEY[name])
        for name, section in (("model", spelled_out(config.model)), ("train", config.train))
    )
    name, options = config.model.name, config.model.options
    code = [*code_of_model(name), *code_of_metrics([config.train.monitor])]
    parts = [(part, _version(part), code_of_model(part)) for part in _parts(name, options)]
    searched = ["epochs of held-out rows"] if config.train.searches_epochs(has_valid=data.rows("valid") > 0) else []
    searched += ["repeats"] if config.evaluate.repeats else []  # as ranked for the epoch and the candidate of `auto`
    searched += [f"cold slots {slots}"] if (slots := config.recommend.cold_slots) else []  # as served from the run
    searched += ["state of optimizers"] if config.train.continue_from else []
    return key_of("run", _FORMAT, _version(name), code, model, train, data.key, *([parts] if parts else []), *searched)


def _version(model: str) -> int:
    return int(getattr(model_config_type(model), "format", 1))


def _parts(name: str, options: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the models that a model trains (`model_parts` of its Config), and of their own ones."""
    for part in getattr(model_config(name, options), "model_parts", ()):
        yield part.name
        yield from _parts(part.name, part.options)


@dataclass(frozen=True)
class Selection:
    """The selected run, by the name of its folder."""

    name: str
    resume: bool = False
    up_to_date: bool = False


def select(
    data: PreparedData, config: RunConfig, workspace: Workspace, *, resume: bool | None, force: bool, emit: Emit
) -> Selection:
    """Select the run for a call, and create the folder of a new one: with `force` even if there is a finished one.

    A damaged finished run counts as missing. With `resume` None, an unfinished run is resumed if there is one, unless `force`.

    Raises:
        MissingArtifactError: There is no run to resume, or no run `train.continue_from`.
        MissingExtraError: A package of the config's model, trackers or placement is not installed.
        ConfigError: The model, a tracker or the device does not exist.
    """
    key = run_key(config, data)
    unfinished = unfinished_run(workspace, key)
    if resume and unfinished is not None:
        return Selection(unfinished.folder.name, resume=True)
    finished = None if force else finished_run(workspace, key, emit)
    if finished is not None:
        report_other_version(finished, emit)
        return Selection(finished.folder.name, up_to_date=True)
    if resume:
        raise _nothing_to_resume(workspace, config)
    if unfinished is not None and resume is None and not force:
        return Selection(unfinished.folder.name, resume=True)
    if unfinished is not None:
        emit(Message(f"there is an unfinished run of this config, {unfinished.folder.name}: resume it with --resume"))
    _require(config, workspace)
    return Selection(_new_run(workspace, config, key).folder.name)


def finished_run(workspace: Workspace, key: str, emit: Emit) -> TrainedRun | None:
    """Return the latest finished run of a key without damage, with a warning on later, damaged ones.

    Weights may have gigabytes: unchanged files are verified by their readers only.
    """
    for run in reversed(workspace.runs()):
        if not (run.exists and run.folder.name.endswith(key[:8])):
            continue
        try:
            run.verify_changed()
        except (DataError, MissingArtifactError) as error:
            text = f"{error.message}; the run is trained again, and {run.folder} can be deleted"
            emit(Message(text, "warning"))
        else:
            if run.key == key:
                return run
    return None


def _require(config: RunConfig, workspace: Workspace) -> None:
    """Check the requirements of a config before a run is created."""
    # Imported late: these load torch, and `recsys status` only needs the keys.
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
def locked(selected: Selection, config: RunConfig, workspace: Workspace) -> Iterator[None]:
    """Lock the folder of a run; a new run without metrics or checkpoint is removed after a failure."""
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


def train_lock(key: str) -> str:
    """Return the name of the lock for training runs of a key."""
    return f"train-{key[:16]}"


def _new_run(workspace: Workspace, config: RunConfig, key: str) -> TrainedRun:
    """Create the folder of a new run; of two processes in one second, one waits for the next."""
    while True:
        run = workspace.new_run(config.model.name, key)
        try:
            run.folder.mkdir(parents=True)
        except FileExistsError:
            time.sleep(0.1)
        else:
            return run


def unfinished_run(workspace: Workspace, key: str) -> TrainedRun | None:
    """Return the latest unfinished run with a key, by its `last` checkpoint or else by its name."""
    runs = [run for run in workspace.runs() if not run.exists and run.folder.name.endswith(key[:8])]
    for run in reversed(runs):
        last = run.checkpoint("last")
        if not last.is_file() or header_of(last).get("key") == key:
            return run
    return None


def header_of(checkpoint: Path) -> dict[str, Any]:
    """Return the plain values of a checkpoint, such as `key` and `progress`; empty without a readable one."""
    try:
        with safe_open(checkpoint, framework="np") as file:  # framework="pt" would load torch
            header: dict[str, Any] = json.loads((file.metadata() or {})["recsys"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return {}
    return header


def _nothing_to_resume(workspace: Workspace, config: RunConfig) -> MissingArtifactError:
    others = [run for run in workspace.runs() if not run.exists and run.checkpoint("last").is_file()]
    if not others:
        return MissingArtifactError(f"there is nothing to resume in {workspace.root}", hint="recsys train")
    with whole(others[-1].config, hint="recsys train --force"):
        old = yaml12.parse(others[-1].config.read_text(encoding="utf-8"))
    new = config.model_dump(mode="json")
    changed = [
        f"{section}.{option} is {new[section].get(option)} and was {old[section].get(option)}"
        for section, excluded in _NOT_IN_KEY.items()
        for option in sorted({*new[section], *old[section]} - excluded)
        if new[section].get(option) != old[section].get(option)
    ]
    difference = "; ".join(changed) or "its data is different"
    return MissingArtifactError(
        f"the unfinished run {others[-1].folder.name} was started with another config: {difference}",
        hint="resume with the config of that run, or train anew without --resume",
    )
