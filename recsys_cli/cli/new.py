"""`recsys init`: a commented config for a table of the user's own, from its header and first row."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.columns import FilePreview, choose, peek
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


def init(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    ctx: typer.Context,
    interactions: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="CSV, TSV or parquet file with a row for each interaction.", show_default=False
        ),
    ],
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the user's id.")] = None,
    item: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the item's id.")] = None,
    rating: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with a rating; more than 3 counts as liked.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with 1 for liked and 0 for not.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with the time; the latest rows then test.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Config to write.", show_default="TABLE.yaml")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a config that is there.")] = False,
) -> None:
    """Write a config for a table of your own.

    Columns that you do not name are guessed from the header.
    """
    session: Session = ctx.obj
    table = peek(interactions)
    asked = {"user": user, "item": item, "rating": rating, "label": label, "timestamp": timestamp}
    columns = choose(table, asked)
    path = output or Path(f"{interactions.stem}.yaml")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already", hint="give another with --output, or --force to write over it")
    from recsys_cli.workspace import write_text

    write_text(path, _text(table, columns, path))
    named = {part: column for part, column in columns.items() if column}
    session.report({"config": str(path), "columns": named, "next": f"recsys run {shlex.quote(str(path))}"}, _draw)


def _text(table: FilePreview, columns: dict[str, str | None], path: Path) -> str:
    from recsys_cli.config.starting import positive
    from recsys_cli.config.yaml12 import quoted

    shown = {part: quoted(column) for part, column in columns.items() if column}
    user, item, label, timestamp = (shown.get(part) for part in ("user", "item", "label", "timestamp"))
    others = [column for column in table.header if column not in columns.values()]
    lines = [
        f"# A recommender from {table.path.name}, written by recsys init. Change what you like, then:",
        "#",
        f"#   recsys run {shlex.quote(str(path))}",
        "#",
        "# or step by step: recsys etl, recsys train, recsys evaluate.",
        "",
        "dataset:",
        "  name: files",
        f"  interactions: {quoted(str(table.path))}  # a path, or a list; relative to where recsys is run",
        "",
        *_split_lines(timestamp),
        "",
        "features:",
        f"  user: {user}",
        f"  item: {item}",
        f"  label: {label or 'label'}",
        *([f"  timestamp: {timestamp}"] if timestamp else []),
        "  ops:",
        f"    - {{op: Categorify, columns: [{user}, {item}]}}  # values to ids, learnt from the train split alone",
    ]
    if others:
        lines.append(
            f"    # Columns not used: {', '.join(map(quoted, others))}. Those with few distinct values may join the list above."
        )
    if not label:
        expression = quoted(positive(str(columns["rating"])))
        lines.append(
            f"    - {{op: LambdaOp, expression: {expression}, output: label, dtype: int8}}  # what counts as liked"
        )
        number = f"{{name: {shown['rating']}, task: regression}}"
        lines.append(
            f"    # To predict {shown['rating']} itself, let the label be {number}, and leave the line above out."
        )
    title = next((column for column in others if column.lower() == "title"), None)
    named = [] if title is None else ["", "evaluate:", f"  title: {quoted(title)}  # what the report calls the items"]
    return "\n".join([*lines, "", *_MODEL, *named]) + "\n"


def _split_lines(timestamp: str | None) -> list[str]:
    if timestamp:
        return [
            "split:",
            "  method: temporal  # the latest rows test, those before validate: as it will be when it is used",
            "  valid: 0.1",
            "  test: 0.1",
        ]
    return [
        "split:",
        "  method: random  # give features.timestamp and take temporal, if the table has a time",
        "  valid: 0.1",
        "  test: 0.1",
        "  seed: 42",
    ]


_MODEL = [
    "model:",
    "  name: mlp  # predicts labels of given rows; to rank the catalog: ease, sasrec. Options: recsys ls models NAME",
    "",
    "train:",
    "  epochs: 20",
    "  batch_size: 4096",
    "  learning_rate: 0.002",
    "  early_stopping: 2  # stop after two epochs that were no better; the best one is kept",
]


def _draw(to: Console, found: Mapping[str, Any]) -> None:
    from recsys_cli.cli.tables import facts, line

    line(to, f"wrote {found['config']}")
    facts(to, [(f"  {part}", column) for part, column in found["columns"].items()])
    line(to, f"next: {found['next']}", style="dim")
