"""Finds the run of a command line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from recsys_cli.cli.params import config_path, is_config, read_config, split_arguments
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError, MissingArtifactError, RecsysError

_MAX_LISTED = 8
"""Number of runs in an error."""

if TYPE_CHECKING:
    from recsys_cli.config import EvaluateConfig, RunConfig
    from recsys_cli.workspace import TrainedRun, Workspace


def run_and_config(session: Session, arguments: Sequence[str]) -> tuple[TrainedRun, EvaluateConfig]:
    """Return the run to evaluate, by name or config, and the evaluate section."""
    from recsys_cli.config import load

    given, overrides = split_arguments(arguments)
    if given is None or is_config(given):
        config = read_config(session, arguments)
        return find_run(config, session.workspace), config.evaluate
    run = finished(session.workspace.run(full_name(session, given)))
    run.verify_config()
    others = [text for text in overrides if not text.startswith("evaluate.")]
    if others:
        raise ConfigError(
            f"{', '.join(others)}: a finished run only accepts overrides of evaluate.KEY",
            hint=f"train another run: recsys train {run.config} {' '.join(others)}",
        )
    return run, load(run.config, overrides).evaluate


def named_run(session: Session, name: str | None) -> TrainedRun:
    """Return the finished run with a name; without a name the run of the current config.

    Raises:
        MissingArtifactError: There is no such run, or it is not finished.
    """
    from recsys_cli.config import load

    if name is not None:
        return finished(session.workspace.run(full_name(session, name)))
    return find_run(load(config_path(session, None)), session.workspace)


def full_name(session: Session, name: str) -> str:
    """Return the full name of a run; of several matches, the only one on the data of the current config.

    Without a match the name itself, for the error of its reader.

    Raises:
        MissingArtifactError: Several runs match; the message has the options that differ.
    """
    from recsys_cli.config import load
    from recsys_cli.stages.etl import data_key

    matches = [run for run in session.workspace.runs_like(name) if run.exists]
    if len(matches) < 2:
        return name
    try:
        key = data_key(load(config_path(session, None)), session.workspace)
        names = [run.folder.name for run in matches if run.manifest["data"].get("key") == key]
    except RecsysError:  # the current config, its dataset or a manifest is missing or damaged
        names = []
    if len(names) == 1:
        return names[0]
    try:
        listed = "; ".join(_with_options(matches[-_MAX_LISTED:]))
    except RecsysError:  # the config of a run is damaged
        return name
    raise MissingArtifactError(f"{len(matches)} runs match {name!r}: {listed}", hint="name one of them in full")


def _with_options(runs: Sequence[TrainedRun]) -> list[str]:
    """Return the names of runs with the options of model and training that differ between them."""
    from recsys_cli.config import load
    from recsys_cli.training.trackers.tracker import flat

    configs = [flat(load(run.config).model_dump(mode="json", include={"model", "train"}), ".") for run in runs]
    differing = [key for key in dict.fromkeys(chain(*configs)) if len({str(one.get(key)) for one in configs}) > 1]
    options = [
        ", ".join(f"{key}={'null' if one[key] is None else one[key]}" for key in differing if key in one)
        for one in configs
    ]
    return [f"{run.folder.name}{f' ({text})' if text else ''}" for run, text in zip(runs, options, strict=True)]


def find_run(config: RunConfig, workspace: Workspace) -> TrainedRun:
    """Return the latest finished run of a config.

    Raises:
        MissingArtifactError: The config is not trained, or its run is not finished.
    """
    from recsys_cli.stages.etl import prepared_data
    from recsys_cli.stages.run_selection import run_key, unfinished_run
    from recsys_cli.workspace import not_finished

    key = run_key(config, prepared_data(config, workspace))
    runs = [run for run in workspace.runs() if run.is_made(key)]
    if not runs and (unfinished := unfinished_run(workspace, key)) is not None:
        raise not_finished(unfinished)
    if not runs:
        raise MissingArtifactError(
            f"the model of this config is not trained in {workspace.root}",
            hint="recsys train; recsys status shows all runs",
        )
    return runs[-1]


def finished(run: TrainedRun) -> TrainedRun:
    """Return a run after checking that it is finished."""
    if not run.exists:
        from recsys_cli.workspace import not_finished

        raise not_finished(run)
    return run
