"""What each verb does, as plain functions: config and workspace in, artifact out; importable and silent.

The order is download, etl, train, evaluate. Each takes `force` and `emit`, and returns what it `Made`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from recsys_cli import __version__
from recsys_cli.events import Emit, Message
from recsys_cli.workspace import Artifact

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class Made(Generic[A]):
    """A stage's artifact, and whether it was there already.

    Attributes:
        artifact: What the stage makes.
        up_to_date: True where nothing had to be done.
    """

    artifact: A
    up_to_date: bool


def tell_version(artifact: Artifact, emit: Emit) -> None:
    """Say where an artifact that is up to date was made by another version of this program."""
    if (version := artifact.made_by) is not None:
        emit(
            Message(
                f"{artifact.folder.name} was made by recsys {version}, and this is {__version__}: --force makes it again"
            )
        )
