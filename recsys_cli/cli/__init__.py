"""The command line: the app, its global options, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from recsys_cli import __version__, cpu, plugins
from recsys_cli.cli import bench, catalog, compare, inspect, new, run, shells, show, tune
from recsys_cli.cli.group import Command, Recsys
from recsys_cli.cli.session import Session

EPILOG = (
    "From raw data to a measured model: recsys download movielens-25m, recsys etl configs/ml25m.yaml, "
    "recsys train, recsys evaluate. Global options may stand anywhere on the line."
)


app = typer.Typer(
    cls=Recsys,
    help="Raw interactions to a trained and measured recommender, with one YAML file and one workspace folder.",
    epilog=EPILOG,
    # Plain help: the formatted one loads rich and its markdown, which doubles the time to an answer.
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"recsys {__version__}")
        raise typer.Exit


def _show_completion(wanted: bool) -> None:
    if wanted:
        typer.echo(shells.SCRIPTS[shells.current()], nl=False)
        raise typer.Exit


def _install_completion(wanted: bool) -> None:
    if wanted:
        shell = shells.current()
        typer.echo(f"{shells.install(shell)} completes recsys in {shell} from its next start on")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(  # noqa: PLR0913, PLR0917 - one for each option
    ctx: typer.Context,
    workspace: Annotated[
        Path,
        typer.Option(
            "--workspace", "-w", envvar="RECSYS_WORKSPACE", help="Folder that everything is made in.", metavar="DIR"
        ),
    ] = Path("workspace"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of unexpected errors.")] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust",
            metavar="MODULE",
            help="Let configs name components of this module, whose code then runs (or RECSYS_TRUST).",
            show_default=False,
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - answered by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    install: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--install-completion", callback=_install_completion, is_eager=True, help="Let your shell complete recsys."
        ),
    ] = False,
    show: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--show-completion", callback=_show_completion, is_eager=True, help="Print the shell's script for that."
        ),
    ] = False,
) -> None:
    """Note the global options for the command that follows."""
    if trust:
        ctx.call_on_close(plugins.trust(*trust))
    ctx.obj = Session(root=workspace, as_json=as_json, quiet=quiet, verbose=verbose)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


_COMMANDS: dict[str, Callable[..., None]] = {
    "download": run.download,
    "etl": run.etl,
    "train": run.train,
    "evaluate": run.evaluate,
    "run": run.run,
    "tune": tune.tune,
    "bench": bench.bench,
    "compare": compare.compare,
    "status": show.status,
    "report": show.report,
    "inspect": inspect.inspect,
    "ls": catalog.ls,
    "init": new.init,
    "validate": show.validate,
    "config": show.show_config,
    "doctor": show.doctor,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, cls=Command)(_command)


def main() -> None:
    """Answer the console script `recsys`."""
    cpu.configure_threads()  # before any command loads torch
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a title in a script that the terminal lacks is no reason to stop
    if shells.SHELL in os.environ:
        _complete(os.environ[shells.SHELL], os.environ.get(shells.LINE, ""))
        return
    app()


def _complete(shell: str, line: str) -> None:
    """Answer a shell that asks what may come next; whatever goes wrong, it shows nothing."""
    from recsys_cli.cli.completion import answer

    with suppress(Exception):
        sys.stdout.write(answer(typer.main.get_command(app), shell, line) + "\n")
