"""Names of ids of a finished run, with titles from its raw data."""

from __future__ import annotations

from recsys_cli.config import RunConfig
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.etl.titles import read_titles
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.result import Evaluation
from recsys_cli.features.schema import Role
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


def names_of(config: RunConfig, data: PreparedData, workspace: Workspace, *, title: str | None) -> IdNames:
    """Return the raw ids of users and items, with titles if the raw data has them.

    Raises:
        ConfigError: The column of `title` does not exist.
    """
    raw = workspace.raw(config.dataset.name).fetch().folder
    return IdNames(data, read_titles(config, raw, IdNames(data).values(Role.ITEM), title=title))


def evaluated_title(run: TrainedRun) -> str | None:
    """Return the column of titles of the latest evaluation; None without one."""
    try:
        return Evaluation.read(run.evaluated().evaluation).config.title
    except (MissingArtifactError, DataError):
        return None
