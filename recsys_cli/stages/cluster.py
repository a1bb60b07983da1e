"""The cluster of a config, for whole runs and trials as parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recsys_cli.events import Emit
from recsys_cli.executors.cluster import Cluster
from recsys_cli.executors.executor import open_executor
from recsys_cli.workspace import Workspace


@contextmanager
def open_cluster(
    name: str | None, workspace: Workspace, emit: Emit, *, workers: int | None = None
) -> Iterator[Cluster | None]:
    """Open a cluster whose workers share the workspace; None without one, and for `auto`."""
    if name is None or name == "auto":
        yield None
        return
    packages = ("torch", "numpy", "pyarrow")
    with (
        workspace.scratch() as scratch,
        open_executor(name, scratch, workers=workers, packages=packages, emit=emit) as opened,
    ):
        assert isinstance(opened, Cluster)
        opened.folder = Path.cwd()  # configs have relative paths
        yield opened
