"""The workspace of the Python API: the same folder, with runs that recommend."""

from __future__ import annotations

from pathlib import Path

from recsys_cli import workspace
from recsys_cli.api.boundary import public
from recsys_cli.api.run import TrainedRun


class Workspace(workspace.Workspace):
    """A folder with all datasets, prepared data and runs; `recsys --workspace` uses the same one."""

    @public
    def __init__(self, root: Path | str) -> None:
        super().__init__(root)

    @public
    def run(self, name: str) -> TrainedRun:
        """Return a run by its name, by a unique beginning or end of it, or by its model.

        Raises:
            MissingArtifactError: No run matches, or more than one.
        """
        return TrainedRun(super().run(name).folder)
