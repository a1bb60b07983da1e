"""The session: global options of one command line, and its output."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from recsys_cli.cli.tables import console, line
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.events import Emit, Event
    from recsys_cli.workspace import Workspace

Draw = Callable[["Console", Any], None]


@dataclass
class Session:
    """Global options of one command line, its output, and the running stage.

    Attributes:
        address: Folder of the workspace, or its URL.
        names_root: Whether the command line names the workspace.
        on_work: Called with each event of a stage.
    """

    address: str
    names_root: bool = False
    as_json: bool = False
    quiet: bool = False
    stage: str | None = None
    on_work: Callable[[], None] | None = None

    @property
    def root(self) -> Path:
        """The folder of the workspace; of one on object storage its mirror."""
        if not self.is_remote:
            return Path(self.address)
        from recsys_cli.workspace.mirror import mirror_folder

        return mirror_folder(self.address)

    @property
    def is_remote(self) -> bool:
        """Whether the workspace is on object storage."""
        return "://" in self.address and not self.address.startswith("file:")

    @cached_property
    def workspace(self) -> Workspace:
        """The workspace, opened once."""
        from recsys_cli.workspace import Workspace

        _check_folder(self.root)
        return Workspace(self.address)

    def located(self, hint: str | None) -> str | None:
        """Return a hint with the workspace of the command line in its commands."""
        if hint is None or not self.names_root:
            return hint
        from recsys_cli.cli.group import PLACES

        names = "|".join(PLACES.keys() - {"ls", "init", "doctor"})
        return re.sub(rf"\brecsys (?=({names})\b)", lambda _: f"recsys -w {shlex.quote(self.address)} ", hint)

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes: rank 0 under torchrun, or the only one."""
        from recsys_cli.training.member import Member

        member = Member.from_environment()
        return member is None or member.is_first

    @contextmanager
    def working(self, stage: str) -> Iterator[Emit]:
        """Show the progress of a stage on stderr; stdout is for the result only."""
        from recsys_cli.cli.render import renderer
        from recsys_cli.packages import leave_out_pandas

        leave_out_pandas()
        self.stage = stage
        with renderer(stage, quiet=self.quiet or not self.is_first) as emit:
            yield self._noted(emit)
        self.stage = None

    def _noted(self, emit: Emit) -> Emit:
        def noted(event: Event) -> None:
            if self.on_work is not None:
                self.on_work()
            emit(event)

        return noted

    def report(self, result: Mapping[str, Any], draw: Draw) -> None:
        """Print the result of a stage; nothing with --quiet."""
        if self.is_first and (self.as_json or not self.quiet):
            self.answer(result, draw)

    def answer(self, result: Mapping[str, Any], draw: Draw) -> None:
        """Print the result of a query: drawn, or as one JSON object."""
        if result.get("next"):
            result = {**result, "next": self.located(result["next"])}
        if self.as_json:
            typer.echo(json.dumps(_finite(result), indent=2, default=str, ensure_ascii=False))
            return
        to = console()
        draw(to, result)
        if result.get("next"):
            line(to, f"next: {result['next']}", style="dim")


def _check_folder(root: Path) -> None:
    try:
        if root.is_dir() or not (root.exists() or root.is_symlink()):
            return
        reason = "broken link" if root.is_symlink() and not root.exists() else "not a folder"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ConfigError(f"--workspace {root}: {reason}", hint="use an existing or a new folder")


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by None."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
    return value
