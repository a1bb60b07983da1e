"""Checks of workers: the same releases and source, the packages of the task, and the shared folder."""

from __future__ import annotations

import hashlib
import platform
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import recsys_cli
from recsys_cli import __version__
from recsys_cli.errors import MissingExtraError, RecsysError
from recsys_cli.packages import installed

Requires = Callable[[], MissingExtraError | None]

_SHARE = "put the workspace on a file system that every worker mounts at the same path, and name it with --workspace"


def releases(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions to match on every worker: recsys-cli with a hash of its source, others as major.minor."""
    versions = {
        "recsys-cli": f"{__version__} of source {_source()}",
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for package in packages:
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
        missing: The package that the tasks lack on this worker; None if it can run.
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

    def is_same(self) -> bool:
        """Whether this process reads the original token."""
        return (self.path / "token").read_text() == self.token

    def reply(self) -> str | None:
        """Write a reply of this process; return the reason against the folder, or None."""
        try:
            problem = None if self.is_same() else f"the worker has another folder at {self.path}"
            (self.path / f"reply-{self.token}-{uuid.uuid4().hex[:8]}").touch()
        except OSError as error:
            return str(error)
        return problem

    def num_replies(self) -> int:
        """Count the replies of workers."""
        return len(list(self.path.glob(f"reply-{self.token}-*")))


@dataclass(frozen=True)
class Checks:
    """The checks of every worker, sent to it.

    Attributes:
        packages: Packages with the same release everywhere.
        requires: Returns a missing package of the tasks, or None.
    """

    shared: SharedFolder
    packages: tuple[str, ...]
    requires: Requires | None = None

    def inspect(self) -> WorkerInfo:
        """Return the state of the current worker, and write its reply."""
        missing = self.requires() if self.requires else None
        return WorkerInfo(socket.gethostname(), releases(self.packages), missing, self.shared.reply())

    def problems(self, workers: Mapping[str, WorkerInfo | Exception]) -> dict[str, str]:
        """Return the problems of workers (state or error of the inspection, by address), each with its hint."""
        here = releases(self.packages)
        hints: dict[str, str] = {}
        for address, info in workers.items():
            if isinstance(info, TimeoutError):
                hints[f"worker {address}: {info}"] = "end it if it hangs; on a busy machine run the command again"
                continue
            if isinstance(info, Exception):
                problem = f"worker {address} cannot run a task of recsys-cli: {type(info).__name__}: {info}"
                hints[problem] = self._install(here)
                continue
            worker = f"worker {address} on {info.host}"
            if theirs := [f"{name} {version}" for name, version in info.releases.items() if version != here[name]]:
                ours = [f"{name} {here[name]}" for name, version in info.releases.items() if version != here[name]]
                differ = f"{worker} runs {', '.join(theirs)}; this process runs {', '.join(ours)}"
                hints[differ] = self._install(here)
            if info.missing is not None:
                hints[f"{worker}: {info.missing.message}"] = f"{info.missing.hint}, on every worker"
            if info.folder_error is not None:
                hints[f"{worker} cannot use the scratch folder {self.shared.path}: {info.folder_error}"] = _SHARE
        if not hints and self.shared.num_replies() < len(workers):
            hints[f"files written by the workers to {self.shared.path} are not visible here"] = _SHARE
        return hints

    def _install(self, here: Mapping[str, str]) -> str:
        pins = " ".join(f"{name}=={here[name]}.*" for name in self.packages)
        return f"run every worker on Python {here['python']} after: pip install recsys-cli=={__version__} {pins}"


@cache
def check_shared(shared: SharedFolder) -> None:
    """Check the shared folder, once per process: a worker may have joined after the inspection."""
    try:
        is_same = shared.is_same()
    except OSError as error:
        raise RecsysError(
            f"a worker on {socket.gethostname()} cannot see the workspace: {error}", hint=_SHARE
        ) from error
    if not is_same:
        raise RecsysError(f"{shared.path} is another folder on the worker {socket.gethostname()}", hint=_SHARE)
