"""Checks of workers: the same releases and source, the packages of the task, and the shared folder."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
class Checks:
    """The checks of every worker, sent to it.

    Attributes:
        folder: A shared folder with the token; every worker reads it and writes a reply, to check the file system.
        packages: Packages with the same release everywhere.
        releases: The versions of the process that sends the tasks.
        requires: Returns a missing package of the tasks, or None.
    """

    folder: Path
    token: str
    packages: tuple[str, ...]
    releases: Mapping[str, str] = field(compare=False)
    requires: Requires | None = field(default=None, compare=False)

    @classmethod
    def at(cls, folder: Path, packages: tuple[str, ...], requires: Requires | None = None) -> Checks:
        """Create the folder with its token file."""
        folder.mkdir()
        checks = cls(folder, uuid.uuid4().hex, packages, releases(packages), requires)
        (folder / "token").write_text(checks.token)
        return checks

    def problems(self) -> dict[str, str]:
        """Return the problems of the current worker, each with its hint, and write its reply."""
        found, host = {}, socket.gethostname()
        if theirs := {name: own for name, own in releases(self.packages).items() if own != self.releases[name]}:
            there = ", ".join(f"{name} {release}" for name, release in theirs.items())
            here = ", ".join(f"{name} {self.releases[name]}" for name in theirs)
            found[f"on {host} runs {there}; this process runs {here}"] = self._install()
        if self.requires is not None and (missing := self.requires()) is not None:
            found[f"on {host}: {missing.message}"] = f"{missing.hint}, on every worker"
        if (reason := self._reply()) is not None:
            found[f"on {host} cannot use the scratch folder {self.folder}: {reason}"] = _SHARE
        return found

    def _reply(self) -> str | None:
        """Write a reply of this process; return the reason against the folder, or None."""
        try:
            is_same = (self.folder / "token").read_text() == self.token
            (self.folder / f"reply-{self.token}-{uuid.uuid4().hex[:8]}").touch()
        except OSError as error:
            return str(error)
        return None if is_same else f"the worker has another folder at {self.folder}"

    def _install(self) -> str:
        pins = [f"recsys-cli=={__version__}", *(f"{name}=={self.releases[name]}.*" for name in self.packages)]
        python = self.releases["python"]
        return f"run every worker on Python {python} after: pip install {' '.join(pins)}, or from the same checkout"

    def check(self, workers: Mapping[str, Mapping[str, str] | Exception]) -> None:
        """Check workers by their problems, or the error of their inspection, by address.

        Raises:
            RecsysError: A worker has a problem; the message lists all problems.
        """
        hints: dict[str, str] = {}
        for address, found in workers.items():
            if isinstance(found, TimeoutError):
                hints[f"worker {address}: {found}"] = "end it if it hangs; on a busy machine run the command again"
            elif isinstance(found, Exception):
                problem = f"worker {address} cannot run a task of recsys-cli: {type(found).__name__}: {found}"
                hints[problem] = self._install()
            else:
                hints |= {f"worker {address} {problem}": hint for problem, hint in found.items()}
        if not hints and len(list(self.folder.glob(f"reply-{self.token}-*"))) < len(workers):
            hints[f"files written by the workers to {self.folder} are not visible here"] = _SHARE
        if hints:
            raise RecsysError("\n".join(hints), hint="; ".join(dict.fromkeys(hints.values())))


@cache
def check_this(checks: Checks) -> None:
    """Check the current worker, once per process: it may have joined after the inspection."""
    checks.check({f"process {os.getpid()}": checks.problems()})
