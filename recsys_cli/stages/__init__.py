"""Stages behind the commands: functions from config and workspace to an artifact, without terminal output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from recsys_cli import __version__
from recsys_cli.events import Emit, Message
from recsys_cli.workspace import Artifact

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class Candidate:
    """A candidate of `model: {name: auto}` with its metric on valid; None if it is not measurable."""

    label: str
    run: str
    metric: str
    value: float | None
    seconds: float


@dataclass(frozen=True)
class StageResult(Generic[A]):
    """Artifact of a stage, and whether it existed already; of `auto` also the candidates, best first."""

    artifact: A
    up_to_date: bool
    candidates: tuple[Candidate, ...] = ()


def report_other_version(artifact: Artifact, emit: Emit) -> None:
    """Emit a message about an up-to-date artifact of another version of this program."""
    if (version := artifact.made_by) is not None:
        name = artifact.folder.name
        emit(Message(f"{name} was made by recsys {version}, and this is {__version__}; --force makes it anew"))
