"""What runs on a worker of a cluster: a look at what it is and sees, and tasks, whose errors travel as values."""

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
    """Return the versions that have to be the same everywhere: recsys-cli to the letter, the others as major.minor."""
    found = {
        "recsys-cli": f"{__version__} of source {_source()}",
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for package in _PACKAGES:
        found[package] = ".".join((installed(package) or "missing").split(".")[:2])
    return found


@cache
def _source() -> str:
    """Return a hash of this package's code: two checkouts may have the same version."""
    folder = Path(recsys_cli.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


@dataclass(frozen=True)
class Seen:
    """What a worker says of itself.

    Attributes:
        host: Its machine.
        releases: Its versions.
        lacks: Why the engine cannot run there.
        blind: Why it cannot read and write the scratch folder.
    """

    host: str
    releases: Mapping[str, str]
    lacks: MissingExtraError | None
    blind: str | None


@dataclass(frozen=True)
class Meeting:
    """A folder in which workers show that they see what this process sees, and that this process sees what they write.

    Attributes:
        folder: On the file system that is shared.
        token: What is written there.
    """

    folder: Path
    token: str

    @classmethod
    def at(cls, folder: Path) -> Meeting:
        """Make the folder and leave the token in it."""
        folder.mkdir()
        meeting = cls(folder, uuid.uuid4().hex)
        (folder / "token").write_text(meeting.token)
        return meeting

    def look(self, engine: Engine) -> Seen:
        """Tell what the worker is that this runs on, and leave an answer in the folder."""
        try:
            blind = None if self.is_here() else f"{self.folder} there is another one"
            (self.folder / f"answer-{self.token}-{uuid.uuid4().hex[:8]}").touch()
        except OSError as error:
            blind = str(error)
        return Seen(socket.gethostname(), releases(), engine.missing(engine.device), blind)

    def is_here(self) -> bool:
        """Whether the folder is the one that was made."""
        return (self.folder / "token").read_text() == self.token

    def answers(self) -> int:
        """Count the workers that could write to it."""
        return len(list(self.folder.glob(f"answer-{self.token}-*")))

    def problems(self, seen: Mapping[str, Seen | Exception]) -> dict[str, str]:
        """Return what is wrong with workers, each with what to do.

        Args:
            seen: What each said, or why it could not, by address.
        """
        here = releases()
        found: dict[str, str] = {}
        for address, said in seen.items():
            if isinstance(said, Exception):
                problem = f"worker {address} cannot run a task of recsys-cli: {type(said).__name__}: {said}"
                found[problem] = _install(here)
                continue
            worker = f"worker {address} on {said.host}"
            if others := [f"{name} {it}" for name, it in said.releases.items() if it != here[name]]:
                ours = [f"{name} {here[name]}" for name, it in said.releases.items() if it != here[name]]
                found[f"{worker} runs {', '.join(others)}; here it is {', '.join(ours)}"] = _install(here)
            if said.lacks is not None:
                found[f"{worker}: {said.lacks.message}"] = f"{said.lacks.hint}, on every worker"
            if said.blind is not None:
                found[f"{worker} cannot use the scratch folder {self.folder}: {said.blind}"] = _SHARE
        if not found and self.answers() < len(seen):
            found[f"what the workers write to {self.folder} is not seen here"] = _SHARE
        return found


def _install(here: Mapping[str, str]) -> str:
    pins = " ".join(f"{name}=={here[name]}.*" for name in _PACKAGES)
    return f"run every worker on Python {here['python']} after: pip install recsys-cli=={__version__} {pins}"


@dataclass(frozen=True)
class Failure:
    """An error on its way back. As a result and not as an error, or Dask would write about it to the worker's log."""

    error: Exception


@dataclass(frozen=True)
class Work(Generic[Part, Result]):
    """A task as it is shared with the workers.

    Attributes:
        task: What is done with a part.
        meeting: What a worker has to see: one may have come after the others were looked at.
    """

    task: Callable[[Part], Result]
    meeting: Meeting

    def do(self, part: Part) -> Result | Failure:
        """Do one part. It may be done twice, when a worker dies: nothing but the result tells that it was done."""
        try:
            _check(self.meeting)
            return self.task(part)
        except Exception as error:  # whatever it is, it is raised again by the one who waits
            return Failure(_portable(error))


def do(work: Work[Part, Result], part: Part) -> Result | Failure:
    """Do one part of a work that was shared."""
    return work.do(part)


@cache
def _check(meeting: Meeting) -> None:
    """Look once in each process whether the folder is there.

    Raises:
        RecsysError: It is not.
    """
    try:
        here = meeting.is_here()
    except OSError as error:
        raise RecsysError(
            f"a worker on {socket.gethostname()} cannot see the workspace: {error}", hint=_SHARE
        ) from error
    if not here:
        raise RecsysError(f"{meeting.folder} is another folder on the worker {socket.gethostname()}", hint=_SHARE)


def _portable(error: Exception) -> Exception:
    """Return an error that can be sent and raised anywhere, with the traceback that it had as a note."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, RecsysError) and type(error).__module__ != "builtins":
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"on {socket.gethostname()}:\n{text}")
    return error
