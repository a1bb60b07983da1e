"""Several processes in one workspace: what one of them holds alone, and scratch folders, which go with whoever made them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from recsys_cli.errors import LockedError
from recsys_cli.events import Emit, Message, ignore

_ASIDE = "aside.json"
"""Note in a scratch folder: which folder of the workspace its `old` and its `artifact` are versions of."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "another process"


@contextmanager
def locked(root: Path, name: str, *, timeout: float, emit: Emit = ignore) -> Iterator[None]:
    """Hold a workspace's lock of a name; a second process says whom it waits for.

    Raises:
        LockedError: It was not free within `timeout` seconds.
    """
    lock = _lock(root, name)
    try:
        lock.acquire(timeout=min(timeout, 0.2))
    except Timeout:
        _wait(root, name, lock, timeout=timeout, emit=emit)
    note = _note(root, name)
    with suppress(OSError):  # it only makes messages better
        note.write_text(json.dumps(asdict(Holder(os.getpid(), socket.gethostname()))), encoding="utf-8")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _wait(root: Path, name: str, lock: FileLock, *, timeout: float, emit: Emit) -> None:
    holder = _holder(root, name)
    if timeout > 1:
        emit(Message(f"{holder} works on {name} in {root}: waiting for it"))
    try:
        lock.acquire(timeout=timeout)
    except Timeout as error:
        raise LockedError(
            f"{_holder(root, name)} works on {name} in {root} and did not finish within {timeout:.0f} s",
            hint=f"wait for it, or use another --workspace (the lock is {lock.lock_file})",
        ) from error


def holder_of(root: Path, name: str) -> Holder | None:
    """Return the process that holds a lock; None where it is free."""
    if not _path(root, name).exists():
        return None
    lock = _lock(root, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _holder(root, name)
    except OSError:  # a workspace that may only be read
        return None
    lock.release()
    return None


def _holder(root: Path, name: str) -> Holder:
    """Return who holds a lock by the note beside it, which is written an instant later."""
    try:
        found = json.loads(_note(root, name).read_text(encoding="utf-8"))
        return Holder(int(found["pid"]), str(found["host"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Holder(0, "")


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """Give a temporary folder inside a workspace; removed at the end, and by the next command after a kill.

    Its path is absolute: workers of a cluster have other working directories.
    """
    sweep(root)
    folder = root.absolute() / ".scratch" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    owner = _owner(root, folder)
    with owner:
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            _restore(folder)
            shutil.rmtree(folder, ignore_errors=True)
            Path(owner.lock_file).unlink(missing_ok=True)


def replace_folder(scratch: Path, made: Path, target: Path) -> None:
    """Put a folder of a scratch folder in the place of another.

    A process that is killed between the two renames leaves a note, by which the next command puts one of the two versions there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        note = {"target": os.path.relpath(target, scratch), "made": made.name}
        (scratch / _ASIDE).write_text(json.dumps(note), encoding="utf-8")
        target.replace(scratch / "old")
    made.replace(target)


def _restore(scratch: Path) -> None:
    """Finish a replacement that was broken off after its first rename: with the new version, or with the old one."""
    try:
        note = json.loads((scratch / _ASIDE).read_text(encoding="utf-8"))
        target = scratch / note["target"]
        versions = [folder for folder in (scratch / note["made"], scratch / "old") if folder.is_dir()]
    except (OSError, ValueError, LookupError, TypeError):
        return
    if versions and not target.exists():
        versions[0].replace(target)


def _owner(root: Path, scratch: Path) -> FileLock:
    """Return the lock that whoever made a scratch folder holds.

    The system lets go of it when the process ends. The process's number would not tell: containers give the same
    ones again, and another machine that shares the workspace has numbers of its own.
    """
    return _lock(root, f"scratch-{scratch.name}")


def sweep(root: Path) -> None:
    """Remove the scratch folders of processes that are no more, and finish what they were replacing."""
    parent = root / ".scratch"
    for folder in parent.iterdir() if parent.is_dir() else ():
        try:
            owner = _owner(root, folder)
            owner.acquire(timeout=0)
        except (Timeout, OSError):  # its process lives, or the workspace may only be read
            continue
        _restore(folder)
        shutil.rmtree(folder, ignore_errors=True)
        Path(owner.lock_file).unlink(missing_ok=True)
        owner.release()


def _path(root: Path, name: str) -> Path:
    return root / ".locks" / f"{name}.lock"


def _note(root: Path, name: str) -> Path:
    """Return the file that names the holder; the lock itself is emptied by whoever tries it."""
    return root / ".locks" / f"{name}.holder.json"


def _lock(root: Path, name: str) -> FileLock:
    path = _path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path)
