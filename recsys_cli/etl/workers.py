"""The worker side of a cluster: checks of versions and the shared folder, and tasks."""

from __future__ import annotations

import hashlib
import platform
import socket
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import recsys_cli
from recsys_cli import __version__
from recsys_cli.errors import MissingExtraError, RecsysError
from recsys_cli.etl.engine import Engine
from recsys_cli.packages import installed

Part = TypeVar("Part")
Result = TypeVar("Result")

_PACKAGES = ("polars", "pyarrow", "numpy", "dask", "distributed")
_SHARE = "put the workspace on a file system that every worker mounts at the same path, and name it with --workspace"


def releases() -> dict[str, str]:
    """Return the versions to match on every worker: recsys-cli with a hash of its source, others as major.minor."""
    versions = {
        "recsys-cli": f"{__version__} of source {_source()}",
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for package in _PACKAGES:
        versions[package] = ".".join((installed(package) or "missing").split(".")[:2])
    return versions


@cache
def _source() -> str:
    """Return a hash of this package's code: two checkouts may have the same version."""
    folder = Path(recsys_cli.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


@dataclass(frozen=True)
class WorkerInfo:
    """The state of a worker.

    Attributes:
        missing: The package that the engine lacks on this worker; None if it can run.
        folder_error: The reason against the scratch folder; None if it is usable.
    """

    host: str
    releases: Mapping[str, str]
    missing: MissingExtraError | None
    folder_error: str | None


@dataclass(frozen=True)
class SharedFolder:
    """A folder with a token: every worker reads it and writes a reply, to check the file system."""

    path: Path
    token: str

    @classmethod
    def at(cls, path: Path) -> SharedFolder:
        """Create the folder with its token file."""
        path.mkdir()
        shared = cls(path, uuid.uuid4().hex)
        (path / "token").write_text(shared.token)
        return shared

    def inspect(self, engine: Engine) -> WorkerInfo:
        """Return the state of the current worker, and write its reply."""
        try:
            folder_error = None if self.is_same() else f"the worker has another folder at {self.path}"
            (self.path / f"reply-{self.token}-{uuid.uuid4().hex[:8]}").touch()
        except OSError as error:
            folder_error = str(error)
        return WorkerInfo(socket.gethostname(), releases(), engine.missing(engine.device), folder_error)

    def is_same(self) -> bool:
        """Whether this process reads the original token."""
        return (self.path / "token").read_text() == self.token

    def num_replies(self) -> int:
        """Count the replies of workers."""
        return len(list(self.path.glob(f"reply-{self.token}-*")))

    def problems(self, workers: Mapping[str, WorkerInfo | Exception]) -> dict[str, str]:
        """Return the problems of workers (state or error of the inspection, by address), each with its hint."""
        here = releases()
        hints: dict[str, str] = {}
        for address, info in workers.items():
            if isinstance(info, Exception):
                problem = f"worker {address} cannot run a task of recsys-cli: {type(info).__name__}: {info}"
                hints[problem] = _install(here)
                continue
            worker = f"worker {address} on {info.host}"
            if theirs := [f"{name} {version}" for name, version in info.releases.items() if version != here[name]]:
                ours = [f"{name} {here[name]}" for name, version in info.releases.items() if version != here[name]]
                hints[f"{worker} runs {', '.join(theirs)}; this process runs {', '.join(ours)}"] = _install(here)
            if info.missing is not None:
                hints[f"{worker}: {info.missing.message}"] = f"{info.missing.hint}, on every worker"
            if info.folder_error is not None:
                hints[f"{worker} cannot use the scratch folder {self.path}: {info.folder_error}"] = _SHARE
        if not hints and self.num_replies() < len(workers):
            hints[f"files written by the workers to {self.path} are not visible here"] = _SHARE
        return hints


def _install(here: Mapping[str, str]) -> str:
    pins = " ".join(f"{name}=={here[name]}.*" for name in _PACKAGES)
    return f"run every worker on Python {here['python']} after: pip install recsys-cli=={__version__} {pins}"


@dataclass(frozen=True)
class Failure:
    """An error as the return value of a task: Dask would log a raised error on the worker."""

    error: Exception


@dataclass(frozen=True)
class SharedTask(Generic[Part, Result]):
    """A task, broadcast to all workers.

    Attributes:
        shared: The folder to check first: a worker may have joined after the inspection.
    """

    task: Callable[[Part], Result]
    shared: SharedFolder

    def run(self, part: Part) -> Result | Failure:
        """Run one part, possibly twice if a worker dies: the task is idempotent."""
        try:
            _check(self.shared)
            return self.task(part)
        except Exception as error:  # raised again in the process that waits for the result
            return Failure(_portable(error))


@cache
def _check(shared: SharedFolder) -> None:
    """Check the shared folder, once per process."""
    try:
        is_same = shared.is_same()
    except OSError as error:
        raise RecsysError(
            f"a worker on {socket.gethostname()} cannot see the workspace: {error}", hint=_SHARE
        ) from error
    if not is_same:
        raise RecsysError(f"{shared.path} is another folder on the worker {socket.gethostname()}", hint=_SHARE)


def _portable(error: Exception) -> Exception:
    """Return an error that any process can unpickle and raise, with its traceback as a note."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, RecsysError) and type(error).__module__ != "builtins":
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"on {socket.gethostname()}:\n{text}")
    return error
