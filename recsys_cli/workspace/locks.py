"""Locks and scratch folders for concurrent processes."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from recsys_cli.errors import LockedError
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.workspace.files import flush, naming, remove_abandoned

_ASIDE = "aside.json"
"""Note in a scratch folder: the target folder of its versions `old` and `artifact`."""


@dataclass(frozen=True)
class Holder:
    """The process with a lock."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "another process"


@contextmanager
def locked(root: Path, name: str, *, timeout: float, emit: Emit = ignore) -> Iterator[None]:
    """Hold a named lock of a workspace; a waiting process reports the holder to `emit`.

    Raises:
        LockedError: The lock was not free within `timeout` seconds.
    """
    lock = _lock(root, name)
    with nullcontext() if root.resolve() in _alone else _gate(root, fcntl.LOCK_SH):
        try:
            lock.acquire(timeout=min(timeout, 0.2))
        except Timeout:
            _wait(root, name, lock, timeout=timeout, emit=emit)
        note = _note(root, name)
        with suppress(OSError):  # only used in messages
            note.write_text(json.dumps(asdict(Holder(os.getpid(), socket.gethostname()))), encoding="utf-8")
        try:
            yield
        finally:
            note.unlink(missing_ok=True)
            lock.release()


_alone: set[Path] = set()
"""Workspaces that this process holds alone."""


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold a workspace alone: commands with a lock of their own are refused meanwhile.

    Raises:
        LockedError: Another command holds a lock.
    """
    with _gate(root, fcntl.LOCK_EX):
        _alone.add(root.resolve())
        try:
            yield
        finally:
            _alone.discard(root.resolve())


@contextmanager
def _gate(root: Path, kind: int) -> Iterator[None]:
    path = _path(root, "alone")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"another command works in {root}", hint="wait for its end") from error
        yield


def _wait(root: Path, name: str, lock: FileLock, *, timeout: float, emit: Emit) -> None:
    holder = _holder(root, name)
    if timeout > 1:
        emit(Message(f"{holder} works on {name} in {root}: waiting for it"))
    try:
        lock.acquire(timeout=timeout)
    except Timeout as error:
        raise LockedError(
            f"{_holder(root, name)} works on {name} in {root} and did not finish within {timeout:.0f} s",
            hint=f"wait for it, or use another --workspace (lock file: {lock.lock_file})",
        ) from error


def holder_of(root: Path, name: str) -> Holder | None:
    """Return the holder of a lock; None for a free lock."""
    if not _path(root, name).exists():
        return None
    lock = _lock(root, name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _holder(root, name)
    except OSError:  # a read-only workspace
        return None
    lock.release()
    return None


def _holder(root: Path, name: str) -> Holder:
    """Read the holder of a lock from its note."""
    try:
        note = json.loads(_note(root, name).read_text(encoding="utf-8"))
        return Holder(int(note["pid"]), str(note["host"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Holder(0, "")


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """Yield a temporary folder in a workspace; removed at the end, or after a kill by the next command.

    The path is absolute, for cluster workers in other working directories.
    """
    sweep(root)
    folder = root.absolute() / ".scratch" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    owner = _owner(root, folder)
    with owner:
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            restore(folder)
            shutil.rmtree(folder, ignore_errors=True)
            Path(owner.lock_file).unlink(missing_ok=True)


def replace_folder(scratch: Path, made: Path, target: Path) -> None:
    """Replace a folder by one from a scratch folder.

    After a kill between the two renames, the next command completes it by a note.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        note = {"target": os.path.relpath(target, scratch), "made": made.name}
        (scratch / _ASIDE).write_text(json.dumps(note), encoding="utf-8")
        target.replace(scratch / "old")
    made.replace(target)


def restore(scratch: Path) -> None:
    """Complete an interrupted replacement, with the new version or else the old one."""
    try:
        note = json.loads((scratch / _ASIDE).read_text(encoding="utf-8"))
        target = scratch / note["target"]
        versions = [folder for folder in (scratch / note["made"], scratch / "old") if folder.is_dir()]
    except (OSError, ValueError, LookupError, TypeError):
        return
    if versions and not target.exists():
        versions[0].replace(target)


def _owner(root: Path, scratch: Path) -> FileLock:
    """Return the lock of a scratch folder's process, released by the system at its end.

    A process id is not enough: containers reuse ids, and machines sharing a workspace have independent ids.
    """
    return _lock(root, f"scratch-{scratch.name}")


def sweep(root: Path) -> None:
    """Remove the scratch folders and temporary files of dead processes, and complete their replacements."""
    remove_abandoned(
        chain(*(root.glob(f"{place}.*.partial") for place in ("", "*/*/", "*/*/*/")))
    )  # files of artifacts
    parent = root / ".scratch"
    for folder in parent.iterdir() if parent.is_dir() else ():
        try:
            owner = _owner(root, folder)
            owner.acquire(timeout=0)
        except (Timeout, OSError):  # a live process, or a read-only workspace
            continue
        restore(folder)
        shutil.rmtree(folder, ignore_errors=True)
        Path(owner.lock_file).unlink(missing_ok=True)
        owner.release()


def _path(root: Path, name: str) -> Path:
    return root / ".locks" / f"{name}.lock"


def _note(root: Path, name: str) -> Path:
    """Return the file with the holder; the lock file itself is truncated by every attempt."""
    return root / ".locks" / f"{name}.holder.json"


def _lock(root: Path, name: str) -> FileLock:
    path = _path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path)


_HERE, _EXCHANGE = -100, 2
"""`AT_FDCWD` and `RENAME_EXCHANGE` of Linux."""


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill in the same file system; at the end it is flushed to disk and replaces the target.

    A reader finds the old or the new version at every moment, also after a kill. Systems other than Linux need two
    renames; after a kill between them, the next call completes the replacement. The temporary name is fixed, so that kills
    leave at most one folder; it requires a single writer at a time.
    """
    scratch = target.absolute().with_name(f".{target.name}.partial")
    made = scratch / target.name
    with naming(target):
        _remove(scratch)
        made.mkdir(parents=True)
        try:
            yield made
            for path in [*made.rglob("*"), made, made.parent]:
                flush(path)
            if not (target.exists() and exchange(made, target)):
                replace_folder(scratch, made, target)
            flush(target.absolute().parent)
        finally:
            _remove(scratch)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders of one file system in one step; False if the system cannot."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def sweep_all(roots: Iterable[Path]) -> None:
    """Remove what killed processes left of replaced files and folders; no other process may write there."""
    for path in [path for root in roots for path in root.rglob(".*.partial")]:
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        else:
            path.unlink(missing_ok=True)


def _remove(scratch: Path) -> None:
    if scratch.is_dir():
        restore(scratch)
        shutil.rmtree(scratch)
