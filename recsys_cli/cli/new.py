"""The command `recsys init`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line, notes, table
from recsys_cli.errors import DataError, RecsysError

_MOST_BAD = 0.1
"""Share of unreadable rows that a config may skip."""
_OTHERS = 50
"""Columns without a role that are shown."""
_OF_CONFIG = r"features|times:|config"
"""Pattern of hints on the keys of a config, which there is not yet."""
_OTHER_COLUMNS = "change the table, or name other columns with --user, --item, --rating, --label or --timestamp"
_ROLES = ("user", "item", "label", "impression", "timestamp")

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.detect import Question, Understanding
    from recsys_cli.detect.tables import Table


def init(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="Interactions, and tables of users and items if any: text, JSON lines or Parquet, packed or not; paths, "
            "globs, folders, URLs, archives (zip, tar.gz), Delta and Iceberg tables, databases, a query.",
            show_default=False,
        ),
    ],
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="User id column.")] = None,
    item: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Item id column, or a column of item lists.")
    ] = None,
    rating: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Rating column; a rating above 3 of 5 is positive.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Binary label column (0 or 1).")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Time column; the split follows the time.")
    ] = None,
    task: Annotated[
        Literal["rank", "label"] | None,
        typer.Option(
            help="Rank the items, or predict the rating or label of given rows.",
            show_default="label for impressions and for rows without a user or item, otherwise rank",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Config to write.", show_default="TABLE.yaml")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing config.")] = False,
) -> None:
    """Write a config for your own tables.

    Roles without an option are guessed from names and values; in a terminal, init asks for the others.
    """
    session: Session = ctx.obj
    given = {"user": user, "item": item, "rating": rating, "label": label, "timestamp": timestamp}
    from recsys_cli.detect import understand
    from recsys_cli.detect.understanding import problems_error
    from recsys_cli.packages import leave_out_pandas
    from recsys_cli.workspace import check_output

    leave_out_pandas()
    found = understand(files, given, task)
    while found.questions:
        if yes or session.as_json or session.quiet or not sys.stdin.isatty():  # the problems name the options to set
            raise problems_error(found.interactions, [question.problem for question in found.questions])
        question = found.questions[0]
        given[question.role] = _answer(question, found.interactions)
        found = understand(files, given, task)
    path = output or Path(found.config_name)
    check_output(path, force=force)
    checked = write_config(found, path, session)
    session.report({**understood(found, path), "notes": [*found.notes, *checked]}, _draw)


def write_config(found: Understanding, path: Path, session: Session) -> list[str]:
    """Write the config if it is valid with the files; return the notes of the validation.

    Raises:
        RecsysError: It is not.
    """
    from recsys_cli.config import load
    from recsys_cli.stages.validate import validate
    from recsys_cli.workspace import check_output, write_text

    notes: list[str] = []
    with TemporaryDirectory(prefix="recsys-") as folder:
        scratch = Path(folder) / path.name
        for attempt in (found, found.skipping_bad_rows()):
            text = attempt.text(str(path))
            scratch.write_text(text, encoding="utf-8")
            try:
                checked = validate(load(scratch), session.workspace)
            except RecsysError as error:
                if attempt is found and isinstance(error, DataError) and "rows that cannot be read" in error.message:
                    notes.append(f"{error.message}; etl.on_bad_rows=skip skips such rows")
                    continue
                problem = error.message.replace(str(scratch), str(path))
                hint = _OTHER_COLUMNS if re.search(_OF_CONFIG, error.hint or "") else error.hint
                raise type(error)(f"no config written, because it would fail: {problem}", hint=hint) from error
            if checked is not None and checked.skipped > _MOST_BAD * checked.sampled:
                raise DataError(
                    f"no config written, because it would fail: {notes[0]}", hint="give tables of one format each"
                )
            check_output(path)
            write_text(path, text)
            return notes if checked is None else [*notes, *checked.notes]
    raise AssertionError("the second attempt ends")


def _answer(question: Question, columns: Table) -> str:
    """Ask for the column of a role."""
    typer.echo(f"Which column has the {question.role}?")
    for name in question.choices:
        typer.echo(f"  {name}: {', '.join(columns.columns[name].samples)}")
    answer = ""
    while answer not in columns.columns:
        answer = typer.prompt(question.role, default=next(iter(question.choices), None))
    return answer


def understood(found: Understanding, path: Path) -> dict[str, Any]:
    """Return what is understood of the tables as plain values."""
    main, task = found.interactions, found.task
    assert task is not None, "open questions"
    assert found.proposal is not None, "open questions"
    by_column = {role.column: (name, role.reason) for name, role in main.roles.items()}
    columns = [
        {
            "column": name, "role": by_column.get(name, ("", ""))[0], "type": one.kind, "samples": list(one.samples),
            "reason": by_column.get(name, ("", ""))[1],
        }
        for name, one in main.columns.items()
    ]  # fmt: skip
    features, rows = found.proposal.sections["features"], found.proposal.sections["dataset"]["interactions"]
    grows = "timestamp" in features and not (isinstance(rows, str) and Path(rows).is_file())
    return {
        "config": str(path),
        "task": task.words,
        "rows": main.sample.total,
        "rows_are_exact": main.sample.is_whole,
        "columns": {role: features[role] for role in _ROLES if role in features},
        "understood": columns,
        "joined": {one.table.sample.name: f"{one.side}s by {one.key}" for one in found.joined},
        "split": found.proposal.sections["split"]["method"],
        "split_reason": found.proposal.comments["split.method"],
        "model": found.proposal.sections["model"]["name"],
        "next": f"recsys run {shlex.quote(str(path))}",
        "daily": f"recsys update {shlex.quote(str(path))}" if grows else None,
    }


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    draw_understanding(to, result)
    line(to, f"wrote {result['config']}")
    if result["daily"]:
        line(to, f"every day, with new rows: {result['daily']}", style="dim")


def draw_understanding(to: Console, result: Mapping[str, Any]) -> None:
    """Draw columns, roles, task, split and notes."""
    others = [one["column"] for one in result["understood"] if not one["role"]]
    left_out = frozenset(others[_OTHERS:])
    rows = [
        (one["column"], one["role"], one["type"], ", ".join(one["samples"]), one["reason"])
        for one in result["understood"]
        if one["column"] not in left_out
    ] + ([(f"and {len(left_out):,} more", "", "", "", "")] if left_out else [])
    about = "" if result["rows_are_exact"] else "about "
    table(to, f"{about}{result['rows']:,} rows", ("column", "role", "type", "samples", "reason"), rows, text=5)
    joined = ", ".join(f"{name} ({how})" for name, how in result["joined"].items())
    split = f"{result['split']}: {result['split_reason']}"
    facts(to, [("task", result["task"]), ("joined", joined), ("split", split), ("model", result["model"])])
    notes(to, result["notes"])
