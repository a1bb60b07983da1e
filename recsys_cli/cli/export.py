"""The command export: a run as a bundle for serving, or in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.params import Overwrite
from recsys_cli.cli.session import Session


def export(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run (name, its beginning or end, or its model). Default: the best evaluated run of the current data.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="Format: bundle, onnx, torch or triton.")
    ] = "bundle",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Folder to write.", show_default="bundles/RUN of the workspace"
        ),
    ] = None,
    histories: Annotated[
        bool, typer.Option("--histories/--no-histories", help="Include the user histories and seen items.")
    ] = True,
    tables: Annotated[
        Literal["fp32", "fp16", "int8"],
        typer.Option("--tables", help="Type of embedding rows; fp16 and int8 are evaluated on the held-out split."),
    ] = "fp32",
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare scores of raw rows with those of the run.")
    ] = True,
    force: Overwrite = False,
) -> None:
    """Export a trained run as one relocatable folder for serving."""
    from recsys_cli.cli.results import export as shown
    from recsys_cli.cli.runs import named_run

    session: Session = ctx.obj
    with session.working("export") as emit:
        from recsys_cli.stages.export import check_kind, export

        check_kind(kind)
        trained = named_run(session, run)
        made = export(
            trained,
            session.workspace,
            kind=kind,
            out=out,
            histories=histories,
            tables=tables,
            verify=verify,
            force=force,
            emit=emit,
        )
    session.report(shown.result(made), shown.draw)
