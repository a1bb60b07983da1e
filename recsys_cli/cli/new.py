"""The command `recsys init`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.columns import FilePreview, assign_roles, preview
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


def init(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    interactions: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="CSV, TSV or parquet file with one row per interaction.", show_default=False
        ),
    ],
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="User id column.")] = None,
    item: Annotated[str | None, typer.Option(metavar="COLUMN", help="Item id column.")] = None,
    rating: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Rating column; a rating above 3 is positive.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Binary label column (0 or 1).")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Time column; makes the split temporal.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Config to write.", show_default="TABLE.yaml")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing config.")] = False,
) -> None:
    """Write a config for your own table.

    Roles without an option are guessed from the header.
    """
    session: Session = ctx.obj
    table = preview(interactions)
    given = {"user": user, "item": item, "rating": rating, "label": label, "timestamp": timestamp}
    columns = assign_roles(table, given)
    path = output or Path(f"{interactions.stem}.yaml")
    if path.exists() and not force:
        raise ConfigError(
            f"{path} already exists", hint="choose another file with --output, or overwrite it with --force"
        )
    from recsys_cli.workspace import write_text

    write_text(path, _text(table, columns, path))
    roles = {role: column for role, column in columns.items() if column}
    session.report({"config": str(path), "columns": roles, "next": f"recsys run {shlex.quote(str(path))}"}, _draw)


def _text(table: FilePreview, columns: dict[str, str | None], path: Path) -> str:
    from recsys_cli.config.starting import positive
    from recsys_cli.config.yaml12 import quoted

    shown = {role: quoted(column) for role, column in columns.items() if column}
    user, item, label, timestamp = (shown.get(role) for role in ("user", "item", "label", "timestamp"))
    others = [column for column in table.header if column not in columns.values()]
    lines = [
        f"# A recommender from {table.path.name}, written by recsys init. Edit it, then run all stages:",
        "#",
        f"#   recsys run {shlex.quote(str(path))}",
        "#",
        "# or each stage: recsys etl, recsys train, recsys evaluate.",
        "",
        "dataset:",
        "  name: files",
        f"  interactions: {quoted(str(table.path))}  # a path or a list of paths, relative to the working directory",
        "",
        *_split_lines(timestamp),
        "",
        "features:",
        f"  user: {user}",
        f"  item: {item}",
        f"  label: {label or 'label'}",
        *([f"  timestamp: {timestamp}"] if timestamp else []),
        "  ops:",
        f"    - {{op: Categorify, columns: [{user}, {item}]}}  # values to ids, fitted on the train split only",
    ]
    if others:
        lines.append(f"    # Unused columns: {', '.join(map(quoted, others))}. Add categorical ones to the list above.")
    if not label:
        expression = quoted(positive(str(columns["rating"])))
        lines.append(
            f"    - {{op: LambdaOp, expression: {expression}, output: label, dtype: int8}}  # positive interactions"
        )
        number = f"{{name: {shown['rating']}, task: regression}}"
        lines.append(f"    # To predict {shown['rating']} itself, set the label to {number} and remove the line above.")
    title = next((column for column in others if column.lower() == "title"), None)
    evaluate = [] if title is None else ["", "evaluate:", f"  title: {quoted(title)}  # item titles in the report"]
    return "\n".join([*lines, "", *_MODEL, *evaluate]) + "\n"


def _split_lines(timestamp: str | None) -> list[str]:
    if timestamp:
        return [
            "split:",
            "  method: temporal  # the latest rows are test, the rows before them valid: as in production",
            "  valid: 0.1",
            "  test: 0.1",
        ]
    return [
        "split:",
        "  method: random  # if the table has a time column, set features.timestamp and use temporal",
        "  valid: 0.1",
        "  test: 0.1",
        "  seed: 42",
    ]


_MODEL = [
    "model:",
    "  name: mlp  # predicts labels of rows; to rank the catalog: ease, sasrec. Options: recsys ls models NAME",
    "",
    "train:",
    "  epochs: 20",
    "  batch_size: 4096",
    "  learning_rate: 0.002",
    "  early_stopping: 2  # stop after two epochs without improvement; the best epoch is kept",
]


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    line(to, f"wrote {result['config']}")
    facts(to, [(f"  {role}", column) for role, column in result["columns"].items()])
    line(to, f"next: {result['next']}", style="dim")
