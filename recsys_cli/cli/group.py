"""The command group with its error boundary, and commands with plain usage lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from recsys_cli.cli.boundary import closed_pipe, explain, hoist, interrupted
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError


class Command(TyperCommand):
    """A command with plain arguments in its help, without types and braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage pieces without braces."""
        return [re.sub(r"^\{(.*)\}(\.\.\.)?$", r"\1\2", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections Arguments and Options."""
        for heading, kind in (("Arguments", "argument"), ("Options", "option")):
            params = [param for param in self.get_params(ctx) if param.param_type_name == kind]
            records = [record for param in params if (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(heading):
                    formatter.write_dl([(re.sub(r" <.*>$", "", name), text) for name, text in records])


PLACES = {
    "download": "download", "etl": "etl", "train": "train", "evaluate": "evaluate", "run": "run", "recommend": "recommend",
    "score": "recommend", "export": "export", "tune": "tune", "bench": "bench", "compare": "compare", "status": "status",
    "report": "report", "inspect": "inspect", "serve": "serve", "feedback": "serve", "update": "update", "watch": "watch",
    "publish": "publish", "rollback": "publish", "forget": "forget", "ls": "catalog", "init": "new",
    "validate": "validate", "config": "validate", "submit": "submit", "auto": "auto", "embed": "embed", "doctor": "doctor",
}  # fmt: skip
"""Module of each command; its function has the name of the command."""


class Commands(Mapping[str, Any]):
    """All commands by name, in the order of the help, each imported and built by its first use."""

    def __getitem__(self, name: str) -> Any:
        return _built(name)

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


def _function(name: str) -> Any:
    return getattr(import_module(f"recsys_cli.cli.{PLACES[name]}"), name)


@cache
def _built(name: str) -> Any:
    info = CommandInfo(name=name, cls=Command, callback=_function(name))
    return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)


class Recsys(TyperGroup):
    """The group of all commands, with an error boundary; accepts global options anywhere on the line."""

    _session: Session | None = None

    def __init__(self, **extra: Any) -> None:
        super().__init__(**{**extra, "commands": Commands()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and texts of all commands, whose arguments are not built."""
        named = {name: TyperCommand(name, help=getdoc(_function(name))) for name in PLACES}
        TyperGroup(commands=dict(named)).format_commands(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the line after moving the global options to the front."""
        if any("\0" in arg for arg in args):
            raise ConfigError("an argument contains NUL")
        return super().parse_args(ctx, hoist(args))

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the line; exit with 130 on an interrupt, 143 on SIGTERM."""
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt as error:
            raise typer.Exit(interrupted(error, None)) from None
        except BrokenPipeError:
            raise typer.Exit(closed_pipe()) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; explain how to continue on an interrupt."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Exit(interrupted(error, ctx.obj, ctx.invoked_subcommand)) from None
        except BrokenPipeError:
            raise typer.Exit(closed_pipe()) from None
        finally:
            self._session = ctx.obj

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,  # noqa: ARG002 - always recsys
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the line and exit with its code; every exception becomes a message here."""
        self._session = None
        line = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(line, "recsys", complete_var, False, windows_expand_args, **extra)
        except Exception as error:
            code = explain(error, line, self._session)
        code = code if isinstance(code, int) else 0
        if standalone_mode:
            sys.exit(code)
        return code
