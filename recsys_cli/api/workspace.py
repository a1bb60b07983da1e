"""The workspace of the Python API: the same folder, with runs that recommend."""

from __future__ import annotations

from pathlib import Path

from recsys_cli import workspace
from recsys_cli.api.arguments import check
from recsys_cli.api.hints import python_hints
from recsys_cli.api.run import TrainedRun


class Workspace(workspace.Workspace):
    """A folder with all datasets, prepared data and runs; `recsys --workspace` uses the same one."""

    def __init__(self, root: Path | str) -> None:
        check(root=(root, (str, Path)))
        super().__init__(root)

    @python_hints()
    def run(self, name: str) -> TrainedRun:
        """Return a run by its name, by a unique beginning or end of it, or by its model.

        Raises:
            MissingArtifactError: No run matches, or more than one.
        """
        check(name=(name, str))
        return TrainedRun(super().run(name).folder)
