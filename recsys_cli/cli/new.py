"""`recsys init`: a commented config for a table of the user's own, from its header and first row."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError
from recsys_cli.registry import suggest

if TYPE_CHECKING:
    from rich.console import Console

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Headings that people give these columns, without case, underscores and spaces; the first that is there is taken.
_USUAL = {
    "user": ("userid", "user", "customerid", "customer", "uid", "visitorid", "sessionid", "memberid", "reviewerid"),
    "item": (
        "itemid",
        "item",
        "movieid",
        "productid",
        "product",
        "articleid",
        "asin",
        "iid",
        "sku",
        "trackid",
        "bookid",
    ),
    "label": ("label", "clicked", "click", "liked", "like", "target", "purchased", "isclick"),
    "rating": ("rating", "stars", "score", "overall"),
    "timestamp": ("timestamp", "time", "ts", "unixreviewtime", "eventtime"),
}


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
        str | None, typer.Option(metavar="COLUMN", help="Column with the time in seconds; the latest rows then test.")
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
    table = _peek(interactions)
    asked = {"user": user, "item": item, "rating": rating, "label": label, "timestamp": timestamp}
    columns = _choose(table, asked)
    path = output or Path(f"{interactions.stem}.yaml")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already", hint="give another with --output, or --force to write over it")
    from recsys_cli.workspace import write_text

    write_text(path, _text(table, columns, path))
    named = {part: column for part, column in columns.items() if column}
    session.report({"config": str(path), "columns": named, "next": f"recsys run {path}"}, _draw)


@dataclass(frozen=True)
class _Table:
    """What a look at the file shows: the header, and the first row where it has one."""

    path: Path
    header: tuple[str, ...]
    first: tuple[str, ...]

    def is_number(self, column: str) -> bool:
        """Whether the first row has a number there, as a time in seconds has to be."""
        if not self.first:
            return True
        try:
            float(self.first[self.header.index(column)])
        except (ValueError, IndexError):
            return False
        return True


def _peek(path: Path) -> _Table:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint=f"paths are relative to {Path.cwd()}")
    if path.suffix.lower() == ".parquet":
        import pyarrow.lib
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
            batch = next(file.iter_batches(batch_size=1), None)
        except pyarrow.lib.ArrowException as error:
            raise ConfigError(f"{path}: not a parquet file: {error}") from error
        first = tuple(str(column[0].as_py()) for column in batch.columns) if batch and batch.num_rows else ()
        return _Table(path, tuple(file.schema_arrow.names), first)
    if path.suffix.lower() not in _SEPARATORS:
        raise ConfigError(f"{path}: cannot tell what kind of table this is", hint="name it .csv, .tsv or .parquet")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=_SEPARATORS[path.suffix.lower()])
            names, values = [*itertools.islice(rows, 2), [], []][:2]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a UTF-8 table: {error}") from error
    if len(names) < 2:
        raise ConfigError(f"{path}: its first line does not name two columns or more: {names}")
    return _Table(path, tuple(names), tuple(values))


def _choose(table: _Table, asked: dict[str, str | None]) -> dict[str, str | None]:
    """Take the columns that are named, and guess the others; all that cannot be guessed is said at once."""
    problems = [
        f"--{part} {column}: there is no such column{suggest(column, table.header)}"
        for part, column in asked.items()
        if column is not None and column not in table.header
    ]
    chosen = {part: column or _guess(part, table, asked) for part, column in asked.items()}
    problems += [
        f"cannot tell which column has the {part}; name it with --{part}"
        for part in ("user", "item")
        if not chosen[part]
    ]
    if not (chosen["rating"] or chosen["label"]):
        problems.append("cannot tell which column has the rating or the label; name it with --rating or --label")
    if chosen["timestamp"] and not table.is_number(chosen["timestamp"]):
        if asked["timestamp"]:
            problems.append(f"--timestamp {chosen['timestamp']}: has to be a number, the time in seconds")
        chosen["timestamp"] = None
    if problems:
        raise ConfigError("\n  ".join([f"{table.path}:", *problems]), hint=f"its columns are {', '.join(table.header)}")
    return chosen


def _guess(part: str, table: _Table, asked: dict[str, str | None]) -> str | None:
    if part in {"rating", "label"} and (asked["rating"] or asked["label"]):
        return None
    plain = {column.lower().replace("_", "").replace(" ", ""): column for column in reversed(table.header)}
    taken = set(asked.values())
    return next((plain[usual] for usual in _USUAL[part] if usual in plain and plain[usual] not in taken), None)


def _text(table: _Table, columns: dict[str, str | None], path: Path) -> str:
    from recsys_cli.config.yaml12 import quoted

    shown = {part: quoted(column) for part, column in columns.items() if column}
    user, item, label, timestamp = (shown.get(part) for part in ("user", "item", "label", "timestamp"))
    others = [column for column in table.header if column not in columns.values()]
    lines = [
        f"# A recommender from {table.path.name}, written by recsys init. Change what you like, then:",
        "#",
        f"#   recsys run {path}",
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
            f"    # Columns not used: {', '.join(others)}. Those with few distinct values may join the list above."
        )
    if not label:
        expression = quoted(f"{columns['rating']} > 3")
        lines.append(
            f"    - {{op: LambdaOp, expression: {expression}, output: label, dtype: int8}}  # what counts as liked"
        )
    return "\n".join([*lines, "", *_MODEL]) + "\n"


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
    "  name: mlp",
    "  embedding_dim: 16",
    "  hidden: [64, 32]",
    "  dropout: 0.2",
    "",
    "train:",
    "  epochs: 20",
    "  batch_size: 4096",
    "  learning_rate: 0.002",
    "  embedding_weight_decay: 0.01  # small tables overfit in their embeddings first",
    "  early_stopping: 2  # stop after two epochs that were no better; the best one is kept",
]


def _draw(to: Console, found: Mapping[str, Any]) -> None:
    from recsys_cli.cli.tables import facts, line

    line(to, f"wrote {found['config']}")
    facts(to, [(f"  {part}", column) for part, column in found["columns"].items()])
    line(to, f"next: {found['next']}", style="dim")
