"""Parameters that several commands share, and how a line's config and overrides become a validated config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recsys_cli.cli import shipped
from recsys_cli.cli.session import Session
from recsys_cli.errors import MissingArtifactError, RecsysError

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig

Config = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG", help="Config file; left out: the one of the last stage in this workspace.", show_default=False
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Values to put over the config: train.epochs=3", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Do it again even if it is up to date.")]


def joined(first: str | None, others: Sequence[str] | None) -> list[str]:
    """Put the positional arguments of a line together again: the first may be an override as well as a config."""
    return [*([first] if first is not None else ()), *(others or ())]


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Take the config, or whatever stands first, from the overrides; an argument with `=` is an override."""
    if arguments and "=" not in arguments[0]:
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def is_config(text: str) -> bool:
    """Whether an argument is a config rather than the name of a run or a dataset."""
    if text.endswith((".yaml", ".yml")):
        return True
    try:
        return Path(text).is_file()
    except OSError:  # longer than a name may be
        return False


def config_path(session: Session, given: str | None) -> Path:
    """Return the config to read: the one that is given, or the one that the last stage used here.

    Raises:
        MissingArtifactError: None is given, and there was none before.
    """
    if given is not None:
        return shipped.resolve(given)
    current = session.workspace.current
    if not current.is_file():
        raise MissingArtifactError(
            f"no config is given, and none was used in {session.root} before",
            hint="give one, such as `recsys etl configs/ml25m.yaml`; `recsys ls configs` shows which there are",
        )
    return current


def read_config(session: Session, arguments: Sequence[str]) -> RunConfig:
    """Read and validate the config that a command line means.

    Raises:
        ConfigError: With every problem in it.
        MissingArtifactError: None is given, and there was none before.
    """
    from recsys_cli.config import load

    given, overrides = split_arguments(arguments)
    return load(config_path(session, given), overrides)


@contextmanager
def settled(session: Session, arguments: Sequence[str]) -> Iterator[RunConfig]:
    """Read a config and make it the workspace's current one, which the next command takes when none is given.

    It is written before the work, so that `recsys train --resume` finds it after an interrupt or a kill; where the work
    ends in an error of the user's, the config before it is current again.
    """
    from recsys_cli.config.load import dump_to_go_on
    from recsys_cli.workspace import write_text

    config = read_config(session, arguments)
    if not session.is_first:
        yield config
        return
    current = session.workspace.current
    before = current.read_text(encoding="utf-8", errors="replace") if current.is_file() else None
    head = "# The config of the last stage here, with every default. Written by recsys; change your own file instead.\n"
    write_text(current, head + dump_to_go_on(config))
    try:
        yield config
    except RecsysError:
        if before is None:
            current.unlink()
        else:
            write_text(current, before)
        raise
