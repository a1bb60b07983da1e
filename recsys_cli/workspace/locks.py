"""Several processes in one workspace: what one of them holds alone, and scratch folders, which go with whoever made them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from recsys_cli.errors import RecsysError


@contextmanager
def locked(root: Path, name: str, *, timeout: float) -> Iterator[None]:
    """Hold a workspace's lock of a name; a second process waits.

    Raises:
        RecsysError: It was not free within `timeout` seconds.
    """
    lock = _lock(root, name)
    try:
        lock.acquire(timeout=timeout)
    except Timeout as error:
        raise RecsysError(
            f"another process works on {name} in {root} and did not finish within {timeout:.0f} s",
            hint=f"wait for it, or use another --workspace (the lock is {lock.lock_file})",
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """Give a temporary folder inside a workspace; removed at the end, and by the next command after a kill.

    Its path is absolute: workers of a cluster have other working directories.
    """
    _sweep(root)
    folder = root.absolute() / ".scratch" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    owner = _owner(root, folder)
    with owner:
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            Path(owner.lock_file).unlink(missing_ok=True)


def _owner(root: Path, scratch: Path) -> FileLock:
    """Return the lock that whoever made a scratch folder holds.

    The system lets go of it when the process ends. The process's number would not tell: containers give the same
    ones again, and another machine that shares the workspace has numbers of its own.
    """
    return _lock(root, f"scratch-{scratch.name}")


def _sweep(root: Path) -> None:
    """Remove the scratch folders of processes that are no more."""
    parent = root / ".scratch"
    for folder in parent.iterdir() if parent.is_dir() else ():
        owner = _owner(root, folder)
        try:
            owner.acquire(timeout=0)
        except Timeout:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        Path(owner.lock_file).unlink(missing_ok=True)
        owner.release()


def _lock(root: Path, name: str) -> FileLock:
    path = root / ".locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path)
