"""Which run a command line means: by name, or as the one that a config has trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recsys_cli.cli.params import is_config, read_config, split_arguments
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError, MissingArtifactError

if TYPE_CHECKING:
    from recsys_cli.config import EvaluateConfig, RunConfig
    from recsys_cli.workspace import TrainedRun, Workspace


def run_and_config(session: Session, arguments: Sequence[str]) -> tuple[TrainedRun, EvaluateConfig]:
    """Find the run to evaluate, and how to.

    Raises:
        ConfigError: The config is wrong, or an override of a named run is of another section.
        MissingArtifactError: There is no such run, or the config has not been trained.
    """
    from recsys_cli.config import load

    given, overrides = split_arguments(arguments)
    if given is None or is_config(given):
        config = read_config(session, arguments)
        return find_run(config, session.workspace), config.evaluate
    run = finished(session.workspace.run(given))
    run.verify(run.config)
    others = [text for text in overrides if not text.startswith("evaluate.")]
    if others:
        raise ConfigError(
            f"{', '.join(others)}: a run is what it is; only evaluate.KEY=VALUE goes with it",
            hint=f"for another run: recsys train {run.config} {' '.join(others)}",
        )
    return run, load(run.config, overrides).evaluate


def find_run(config: RunConfig, workspace: Workspace) -> TrainedRun:
    """Return the run that a config has trained.

    Raises:
        MissingArtifactError: There is none, or it is not finished.
    """
    from recsys_cli.stages.etl import prepared_data
    from recsys_cli.stages.run_selection import run_key, unfinished_run
    from recsys_cli.workspace import not_finished

    key = run_key(config, prepared_data(config, workspace))
    found = [run for run in workspace.runs() if run.is_made(key)]
    if not found and (begun := unfinished_run(workspace, key)) is not None:
        raise not_finished(begun)
    if not found:
        raise MissingArtifactError(
            f"the model of this config is not trained in {workspace.root}",
            hint="recsys train; recsys status shows all runs",
        )
    return found[-1]


def finished(run: TrainedRun) -> TrainedRun:
    """Return the run, if it came to its end.

    Raises:
        MissingArtifactError: It did not.
    """
    if not run.exists:
        from recsys_cli.workspace import not_finished

        raise not_finished(run)
    return run
