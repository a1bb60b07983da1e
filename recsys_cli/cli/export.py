"""The command export: a run as a bundle for serving, or in another format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.params import Overwrite
from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages.export import Exported


def export(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run (name, its beginning or end, or its model). Default: the best run of the current data on valid.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="bundle or triton of all models; onnx or torch of those without histories.",
        ),
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
        typer.Option(help="Type of embedding rows; fp16 and int8 are evaluated on the held-out split."),
    ] = "fp32",
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare scores of raw rows with those of the run.")
    ] = True,
    force: Overwrite = False,
) -> None:
    """Export a trained run as one relocatable folder for serving."""
    from recsys_cli.cli.runs import named_run

    session: Session = ctx.obj
    with session.working("export") as emit:
        from recsys_cli.stages.export import check_kind, export

        check_kind(kind)
        trained = named_run(session, run, emit)
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
    session.report(result(made), draw)


def result(made: Exported) -> dict[str, Any]:
    """Return the result as plain values."""
    return {
        "folder": str(made.folder),
        "bytes": made.num_bytes,
        "verified_rows": made.verified,
        "manifest": {name: value for name, value in made.manifest.items() if name not in {"files", "checksum"}},
        "next": made.use,
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the folder, its size, and the next command."""
    tables = result["manifest"].get("tables")
    if result["verified_rows"]:
        quantized = f" with {tables['type']} tables" if tables else ""
        line(to, f"{result['verified_rows']:,} raw rows have equal scores by the run{quantized} and by the export")
    if tables:
        line(to, f"tables as {tables['type']}: {size(tables['bytes'])} instead of {size(tables['fp32_bytes'])}")
        for name, metric in tables["metrics"].items():
            if {"fp32", "quantized"} <= set(metric):
                change = metric["quantized"] - metric["fp32"]
                line(to, f"  {name} on {tables['split']}: {metric['quantized']:.4f}, {change:+.5f} to fp32")
    line(to, f"{size(result['bytes'])} written to {result['folder']}")
