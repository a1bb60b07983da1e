"""The command `recsys update`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.params import Config, Overrides, config_path, joined, read_config, split_arguments
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

_CHECKS = re.compile(r"rows|late|time|unknown users|unknown items|one user|gate|(nulls|values) of .+")
REFUSED = 7
"""Exit code of a refused update: the version before is served."""


def update(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Take the rows or the model despite this check.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="Take the rows from this date on again.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Train a full model beside the continued one.")] = False,
) -> None:
    """Take new rows, train on, compare with the served version, and publish."""
    session: Session = ctx.obj
    line_ = joined(config, overrides)
    settings = read_config(session, line_)
    given = config_path(session, split_arguments(line_)[0])
    name = given.stem
    if unknown := [one for one in accept or () if not _CHECKS.fullmatch(one)]:
        raise ConfigError(f"--accept {unknown[0]}: no check", hint="name one as a refused update does, or gate")
    with session.working("update") as emit:
        from recsys_cli.stages.update import update as bring_up_to_date

        made = bring_up_to_date(
            settings, session.workspace, name, accept=accept or (), since=_time(since), full=full, emit=emit
        )
    following = "" if made.version != 1 else f"recsys serve {session.workspace.root / 'published' / name}"
    if made.verdict == "refused":
        following = _remedy([one.check for one in made.problems], given)
    session.report(asdict(made) | {"next": following}, draw)
    if made.verdict == "refused":
        raise typer.Exit(REFUSED)


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the verdict; the steps were messages."""
    served = (
        "nothing is served" if result["version"] is None else f"version {result['version']} is served ({result['run']})"
    )
    line(to, f"{result['verdict']}: {served}", style="yellow" if result["verdict"] == "refused" else "")


def _remedy(checks: list[str], config: Path) -> str:
    accepted = " ".join(f"--accept {check!r}" if " " in check else f"--accept {check}" for check in checks or ["gate"])
    others = "" if "reading" in checks else f", or recsys update {config} {accepted}"
    return f"correct the data and run it again{others}"


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--from {text}: no date", hint="--from 2026-11-28, or 2026-11-28T06:00") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
