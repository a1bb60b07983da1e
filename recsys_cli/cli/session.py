"""What the global options say about one call of the program: where to work, and how to talk to the user."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.events import Emit
    from recsys_cli.workspace import Workspace

Draw = Callable[["Console", Any], None]


@dataclass
class Session:
    """One call of the program.

    Attributes:
        root: The workspace folder.
        as_json: Whether the result is printed as one JSON object.
        quiet: Whether only errors are printed.
        verbose: Whether unexpected errors show their traceback.
        stage: The stage at work, to say after an interrupt how to go on.
    """

    root: Path
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    stage: str | None = None

    @property
    def workspace(self) -> Workspace:
        """The workspace to read and write.

        Raises:
            ConfigError: The path is taken by something else, or cannot be one.
        """
        from recsys_cli.workspace import Workspace

        _check_folder(self.root)
        return Workspace(self.root)

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes: alone it does, and of several that torchrun has started the first."""
        from recsys_cli.training.distributed.environment import Member

        member = Member.from_environment()
        return member is None or member.is_first

    @contextmanager
    def working(self, stage: str) -> Iterator[Emit]:
        """Draw the events of a stage while it works: on stderr, so that stdout has the result alone."""
        from recsys_cli.cli.render import renderer

        self.stage = stage
        with renderer(stage, quiet=self.quiet or not self.is_first) as emit:
            yield emit
        self.stage = None

    def report(self, result: Mapping[str, Any], draw: Draw) -> None:
        """Print what a stage did; nothing with --quiet."""
        if self.is_first and (self.as_json or not self.quiet):
            self.answer(result, draw)

    def answer(self, result: Mapping[str, Any], draw: Draw) -> None:
        """Print what was asked for: drawn for people, or as one JSON object."""
        if self.as_json:
            typer.echo(json.dumps(_finite(result), indent=2, default=str, ensure_ascii=False))
            return
        from recsys_cli.cli.tables import console

        draw(console(), result)


def _check_folder(root: Path) -> None:
    try:
        if root.is_dir() or not (root.exists() or root.is_symlink()):
            return
        reason = "the link leads nowhere" if root.is_symlink() and not root.exists() else "it is not a folder"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ConfigError(f"--workspace {root}: {reason}", hint="name a folder, there or to be made")


def _finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value
