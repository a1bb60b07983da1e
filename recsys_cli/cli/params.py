"""Shared command-line parameters."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recsys_cli.cli import shipped
from recsys_cli.cli.completion import complete_config, complete_override
from recsys_cli.cli.session import Session
from recsys_cli.errors import DiskFullError, MissingArtifactError, RecsysError

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig

Config = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG",
        help="Config file. Default: config of the last stage in this workspace.",
        show_default=False,
        autocompletion=complete_config,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Override config values: train.epochs=3",
        show_default=False,
        autocompletion=complete_override,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Repeat the stage even if it is up to date.")]
Overwrite = Annotated[bool, typer.Option("--force", help="Replace an existing --out.")]


_COMMAND = re.compile(r"(recsys (\w+)) CONFIG\b")


def joined(first: str | None, others: Sequence[str] | None) -> list[str]:
    """Return all positional arguments: the first may be a config or an override."""
    return [*([first] if first is not None else ()), *(others or ())]


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split the first argument from the overrides; an argument with `=` is an override."""
    if arguments and "=" not in arguments[0]:
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def is_config(text: str) -> bool:
    """Whether an argument is a config, not the name of a run or dataset."""
    if text.endswith((".yaml", ".yml")):
        return True
    try:
        return Path(text).is_file()
    except OSError:  # the file name is too long
        return False


def config_path(session: Session, given: str | None) -> Path:
    """Return the path of the given config, or of the workspace's current config."""
    if given is not None:
        return shipped.resolve(given)
    current = session.workspace.current
    if not current.is_file():
        raise MissingArtifactError(
            f"no config given, and {session.root} has no current config",
            hint=f"name a config, such as `recsys run {_any_config()}`; `recsys ls configs` lists the included ones",
        )
    return current


def _any_config() -> str:
    """Return the latest config in this folder, such as that of `recsys init`; else an included one."""
    files = (path for path in Path().glob("*.yaml") if path.is_file())
    latest = max(files, key=lambda path: path.stat().st_mtime, default=None)
    return "configs/ml25m.yaml" if latest is None else shlex.quote(str(latest))


def read_config(session: Session, arguments: Sequence[str]) -> RunConfig:
    """Read and validate the config of a command line."""
    from recsys_cli.config import load

    given, overrides = split_arguments(arguments)
    return load(config_path(session, given), overrides)


@contextmanager
def current_config(session: Session, arguments: Sequence[str]) -> Iterator[RunConfig]:
    """Read a config and make it the current one of the workspace: the default of later commands.

    It is written with the first event of the stage, so that `recsys train --resume` works after a kill, and a command that
    fails before any work changes nothing. A later RecsysError or OSError restores the previous config.
    """
    from recsys_cli.config.load import dump_resolved

    config = read_config(session, arguments)
    if not session.is_first:
        yield config
        return
    head = "# Config of the last stage; absent train keys are the model's defaults. Written by recsys; edit your own file.\n"
    current = _Current(session.workspace.current, head + dump_resolved(config))
    session.on_work = current.write
    try:
        yield config
    except (RecsysError, OSError) as error:
        with suppress(OSError, DiskFullError):  # as after a full disk; the first error is the one to report
            current.restore()
        if isinstance(error, RecsysError):
            error.hint = _with_config(error.hint, arguments)
        raise
    except BaseException:
        current.write()
        raise
    current.write()


@dataclass
class _Current:
    """The current config of a workspace; other commands may write it, too."""

    path: Path
    text: str
    before: str | None = None
    is_written: bool = False

    def write(self) -> None:
        """Write the config, once."""
        from recsys_cli.workspace import publishing, write_text

        if not self.is_written:
            self.before = self._read()
            self._failed(self.text).unlink(missing_ok=True)
            with publishing(self.path):
                write_text(self.path, self.text)
            self.is_written = True

    def restore(self) -> None:
        """Restore the config before; where another command has written its own since, tell it the one to restore."""
        from recsys_cli.workspace import publishing, write_text

        if not self.is_written:
            return
        if self._read() != self.text:
            write_text(self._failed(self.text), self.before or "")
            return
        before = self.before
        while before and (failed := self._failed(before)).is_file():
            before = failed.read_text(encoding="utf-8")
            failed.unlink()
        with publishing(self.path):
            if before:
                write_text(self.path, before)
            else:
                self.path.unlink(missing_ok=True)

    def _failed(self, text: str) -> Path:
        """Return the file of a failed command with a config: the config before it."""
        return self.path.parent / ".locks" / f"failed-{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"

    def _read(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None


def _with_config(hint: str | None, arguments: Sequence[str]) -> str | None:
    """Return a hint with the config of the command line as CONFIG in its commands; `download` takes no overrides."""
    given, overrides = split_arguments(arguments)
    if hint is None or given is None:
        return hint
    whole = shlex.join([given, *overrides])
    return _COMMAND.sub(lambda found: f"{found[1]} {shlex.quote(given) if found[2] == 'download' else whole}", hint)
