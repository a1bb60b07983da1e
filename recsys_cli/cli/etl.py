"""The command `recsys etl`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.params import Config, Force, Overrides, current_config, joined
from recsys_cli.cli.quantities import duration, share, size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, table
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import RunConfig
    from recsys_cli.etl.new_rows import Applied
    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import PreparedData

_FACTS = (
    "rows", "vocabularies", "quality", "cold", "bad_rows", "engine", "cluster", "workers", "seconds", "peak_memory",
)  # fmt: skip


def etl(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    apply: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|DATA",
            help="Prepare new rows with the fitted ops of this run or prepared data; name the files instead of CONFIG.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Parquet file to write (with --apply).",
            show_default="NEW.prepared.parquet",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Prepare the data: split, encode, join.

    recsys etl --apply RUN_OR_DATA NEW.parquet prepares new rows: all rows, in order, in one parquet file that includes the joined
    columns. Labels, weights and the time may be missing, as may columns computed from them only.
    """
    session: Session = ctx.obj
    if apply is not None:
        _apply(session, apply, joined(config, overrides), output=output, force=force)
        return
    if output is not None:
        raise ConfigError("--out needs --apply", hint="prepared data is always written to the workspace")
    with current_config(session, joined(config, overrides)) as settings:
        result = run_etl(session, settings, force=force)
    session.report(result, draw)


def run_etl(session: Session, config: RunConfig, *, force: bool) -> dict[str, Any]:
    """Prepare the data of a config, with progress; return what its manifest says."""
    with session.working("etl") as emit:
        from recsys_cli.stages.etl import etl

        made = etl(config, session.workspace, force=force, emit=emit)
    return result(made)


def _apply(session: Session, name: str, arguments: list[str], *, output: Path | None, force: bool) -> None:

    overrides = [text for text in arguments if text.startswith("etl.") and "=" in text]
    files = [text for text in arguments if text not in overrides]
    with session.working("etl") as emit:
        from recsys_cli.stages.apply import apply

        made = apply(name, files, session.workspace, output=output, overrides=overrides, force=force, emit=emit)
    session.report(applied(made), draw_applied)


def result(made: StageResult[PreparedData]) -> dict[str, Any]:
    """Gather what the manifest says."""
    manifest = made.artifact.manifest
    return {
        "up_to_date": made.up_to_date,
        "path": str(made.artifact.folder),
        **{fact: manifest.get(fact) for fact in _FACTS},
        **_reported(made.artifact),
        "next": "recsys train",
    }


def _reported(data: PreparedData) -> dict[str, Any]:
    """Return findings and path of the data report, which earlier versions have not."""
    from recsys_cli.workspace import read_json

    if not data.report.is_file():
        return {"findings": [], "report": None}
    facts = read_json(data.facts, hint=data.remake, expected={})
    return {"findings": facts.get("findings", []), "report": str(data.report)}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw splits, vocabularies, findings and the next command."""
    if result["up_to_date"]:
        line(to, f"prepared data is up to date: {result['path']}")
    else:
        _draw_splits(to, result)
        _draw_columns(to, result)
        if result["bad_rows"]:
            line(to, f"{result['bad_rows']:,} bad rows skipped, see {result['path']}/rejected.jsonl", style="yellow")
        for finding in result["findings"]:
            warning = finding["level"] == "warning"
            line(to, f"{finding['level']}: {finding['text']}", style="yellow" if warning else "dim")
        costs = f"{duration(result['seconds']['total'])}, peak memory {size(result['peak_memory'])}"
        by = f" on {result['cluster']}, {result['workers']} workers" if result["cluster"] else ""
        line(to, f"prepared with {result['engine']}{by} in {costs}: {result['path']}")
        if result["report"]:
            line(to, f"report: {result['report']}")


def _draw_splits(to: Console, result: Mapping[str, Any]) -> None:
    total = sum(result["rows"].values()) or 1
    cells = [
        (
            split,
            f"{rows:,}",
            share(rows / total),
            *(_cold(result["cold"].get(split, {}).get(role)) for role in ("users", "items")),
        )
        for split, rows in result["rows"].items()
        if rows
    ]
    table(to, "", ("split", "rows", "share", "cold users", "cold items"), cells)


def _cold(counted: Mapping[str, int] | None) -> str:
    if not counted or not counted["distinct"]:
        return ""
    return f"{counted['cold']:,} ({share(counted['cold'] / counted['distinct'])})"


def _draw_columns(to: Console, result: Mapping[str, Any]) -> None:
    held_out = [split for split in ("valid", "test") if result["rows"].get(split)]
    cells = [
        (
            column,
            f"{entries:,}",
            _missing(result, "train", column, "null"),
            *(_missing(result, split, column, "unseen") for split in held_out),
        )
        for column, entries in result["vocabularies"].items()
    ]
    headings = ("column", "vocabulary", "null in train", *(f"unseen in {split}" for split in held_out))
    table(to, "", headings, cells)


def _missing(result: Mapping[str, Any], split: str, column: str, kind: str) -> str:
    """Return the share of null or unseen values of a column; empty for dimension tables."""
    counted = result["quality"].get(split, {}).get(column)
    if not counted or not counted.get("values"):
        return ""
    return share(counted.get(kind, 0) / counted["values"])


def applied(made: Applied) -> dict[str, Any]:
    """Return the result as plain values."""
    return {
        "output": str(made.output),
        "rows": made.rows,
        "columns": {
            column.name: column.model_dump(mode="json", exclude_defaults=True) for column in made.schema.columns
        },
        "left_out": {name: list(raw) for name, raw in made.left_out.items()},
        "missing": {name: dict(counts) for name, counts in made.missing.items()},
        "engine": made.engine,
    }


def draw_applied(to: Console, result: Mapping[str, Any]) -> None:
    """Draw missing values, omitted columns and the output."""
    cells = [
        (name, share(counts["null"] / counts["values"]), share(counts.get("unseen", 0) / counts["values"]))
        for name, counts in result["missing"].items()
        if counts["values"] and "cardinality" in result["columns"][name]
    ]
    table(to, "", ("column", "null", "unseen"), cells)
    for name, raw in result["left_out"].items():
        line(to, f"{name} is omitted: the new rows have no {', '.join(raw)}", style="yellow")
    line(to, f"{result['rows']:,} rows prepared with {result['engine']}: {result['output']}")
