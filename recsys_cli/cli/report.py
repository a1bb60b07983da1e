"""The command `recsys report`."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run_or_config
from recsys_cli.cli.params import config_path, is_config
from recsys_cli.cli.runs import find_run
from recsys_cli.cli.session import Session
from recsys_cli.errors import MissingArtifactError

if TYPE_CHECKING:
    from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


def report(
    ctx: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|DATA|CONFIG",
            help="Run or prepared data (name, or its beginning), or a config for its prepared data. "
            "Default: the run of the last config if evaluated, otherwise its prepared data.",
            show_default=False,
            autocompletion=complete_run_or_config,
        ),
    ] = None,
) -> None:
    """Open the report of a run or of prepared data; print its path."""
    session: Session = ctx.obj
    result = find_report(session, what)
    session.answer(result, lambda *_: typer.echo(result["report"]))
    if not session.as_json:
        open_page(result["report"])


def find_report(session: Session, given: str | None) -> dict[str, Any]:
    """Return path and content of the report of a run or prepared data (name, or its beginning), or of a config's data.

    None: the run of the current config if evaluated, otherwise its prepared data.
    """
    if given is None:
        return _current(session)
    if is_config(given):
        return _of_data(_data_of(session, given))
    if (Path(given) / "manifest.json").is_file():
        given = Path(given).resolve().name
    return _named(session.workspace, given)


def open_page(page: str) -> None:
    """Open a page in the browser of a graphical, interactive session."""
    graphical = sys.platform in {"darwin", "win32"} or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if graphical and sys.stdout.isatty():
        webbrowser.open(Path(page).as_uri())


def _current(session: Session) -> dict[str, Any]:
    from recsys_cli.config import load

    try:
        run = find_run(load(config_path(session, None)), session.workspace)
    except MissingArtifactError:
        return _of_data(_data_of(session, None))
    return _of_run(run) if run.evaluated().report.is_file() else _of_data(_data_of(session, None))


def _data_of(session: Session, config: str | None) -> PreparedData:
    from recsys_cli.config import load
    from recsys_cli.stages.etl import prepared_data

    return prepared_data(load(config_path(session, config)), session.workspace)


def _named(workspace: Workspace, name: str) -> dict[str, Any]:
    from recsys_cli.workspace import PreparedData

    artifact = workspace.run_or_data(name)
    return _of_data(artifact) if isinstance(artifact, PreparedData) else _of_run(artifact)


def _of_run(run: TrainedRun) -> dict[str, Any]:
    from recsys_cli.workspace import finished

    run = finished(run).evaluated()
    name = run.folder.name
    if not run.report.is_file():
        raise MissingArtifactError(f"run {name} has no report yet", hint=f"recsys evaluate {name}")
    run.verify_evaluation()
    return {"run": name, "report": str(run.report.resolve()), "facts": run.read_evaluation()}


def _of_data(data: PreparedData) -> dict[str, Any]:
    from recsys_cli.workspace import read_json

    if not data.report.is_file():
        hint = f"recsys etl {data.folder / 'config.yaml'} --force"
        raise MissingArtifactError(
            f"the prepared data {data.folder} has no report: writing it failed, or never began", hint=hint
        )
    data.verify(data.report, data.facts)
    return {
        "data": data.folder.name,
        "report": str(data.report.resolve()),
        "facts": read_json(data.facts, hint=data.remake),
    }
