"""The command line: app and global options."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from recsys_cli import __version__, cpu, plugins
from recsys_cli.cli.group import Recsys
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError

EPILOG = (
    "From raw data to an evaluated model: recsys download movielens-25m, recsys etl configs/ml25m.yaml, "
    "recsys train, recsys evaluate. Global options are valid anywhere on the line."
)
_ON_DISK = {"update", "watch", "publish", "rollback", "forget", "feedback"}
"""Commands with files in the workspace that other programs read or write meanwhile."""

app = typer.Typer(
    cls=Recsys,
    help="Train and evaluate recommenders from raw interactions: one YAML file, one workspace folder.",
    epilog=EPILOG,
    # Plain help: importing rich and its Markdown renderer doubles the start-up time.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(enabled: bool) -> None:
    if enabled:
        typer.echo(f"recsys {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    workspace: Annotated[
        str,
        typer.Option(
            "--workspace",
            "-w",
            envvar="RECSYS_WORKSPACE",
            help="Folder of all data, runs and reports, or s3://BUCKET/PREFIX.",
            metavar="DIR",
        ),
    ] = "workspace",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    verbose: Annotated[  # noqa: ARG001 - the error boundary reads the line
        bool, typer.Option("--verbose", "-v", help="Show the traceback of unexpected errors.")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Allow plugins from this module; configs can then run its code (or RECSYS_TRUST).",
            show_default=False,
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Store the global options in the session."""
    if trust:
        ctx.call_on_close(plugins.trust(*trust))
    source = ctx.get_parameter_source("workspace")
    named = source is not None and source.name == "COMMANDLINE"
    ctx.obj = Session(workspace, names_root=named, as_json=as_json, quiet=quiet)
    if ctx.obj.is_remote and ctx.invoked_subcommand in _ON_DISK:
        raise ConfigError(
            f"recsys {ctx.invoked_subcommand} needs a workspace on a disk, and {workspace} is on object storage",
            hint="--workspace DIR; export the runs of object storage with recsys export RUN --out DIR",
        )
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> None:
    """Entry point of the console script `recsys`."""
    cpu.configure_threads()  # before any command imports torch
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them reads the metadata of all packages
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a title may have characters outside the terminal's encoding
    app()
