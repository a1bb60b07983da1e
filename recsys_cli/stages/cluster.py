"""The cluster of a config or an option, and what its workers open once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from recsys_cli.events import Emit
from recsys_cli.executors.address import check_cluster
from recsys_cli.executors.cluster import Cluster
from recsys_cli.executors.executor import open_executor
from recsys_cli.workspace import Workspace

Opened = TypeVar("Opened")
_LOCK = Lock()
_OPENED: dict[str, Any] = {}


@contextmanager
def open_once(command: str, make: Callable[[], Opened]) -> Iterator[Opened]:
    """Yield what `make` returns for the parts of a command: made once per process, for one part at a time, as models have state."""
    with _LOCK:
        if command not in _OPENED:
            _OPENED.clear()
            _OPENED[command] = make()
        yield _OPENED[command]


@contextmanager
def open_cluster(
    name: str | None, workspace: Workspace, emit: Emit, *, workers: int | None = None
) -> Iterator[Cluster | None]:
    """Open a cluster whose workers share the workspace; None without one, and for `auto`.

    Raises:
        ConfigError: The name is neither known nor an address.
        RecsysError: The cluster does not answer, or a worker has a problem.
    """
    if name is not None:
        check_cluster(name)
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
