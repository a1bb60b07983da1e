"""The command `recsys watch`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.report import open_page
from recsys_cli.cli.serve import FeedbackLog
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, notes, table

if TYPE_CHECKING:
    from rich.console import Console

ALARM = 8
"""Exit code of a changed figure."""


def watch(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CONFIG|NAME", help="Config of recsys update, or its name.")],
    feedback: FeedbackLog = None,
) -> None:
    """Show which figures of an updated and served recommender have changed, and write a page."""
    session: Session = ctx.obj
    from recsys_cli.stages.watch import watch as look

    found = look(Path(name).stem, session.workspace, feedback=feedback)
    figures = [
        {"name": one.name, "about": one.about, "kind": one.kind, "state": one.state, "text": one.sentence(found.name),
         "latest": one.ends[0], "usual": one.ends[1], "shown": [*map(one.shown, one.ends)], "days": one.days,
         "from": one.date(0), "values": one.values, "changes": [[*map(one.date, (at.first, at.found))] for at in one.changes]}
        for one in found.figures
    ]  # fmt: skip
    page, number = str(found.page.resolve()), len(found.changed)
    result = {"name": found.name, "served": found.served, "changed": number, "figures": figures, "notes": found.notes}
    session.report({**result, "page": page}, _draw)
    if not session.as_json and not session.quiet:
        open_page(page)
    if number:
        raise typer.Exit(ALARM)


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the figures, and the changes in words."""
    rows = [(one["name"], *one["shown"], str(one["days"]), one["state"]) for one in result["figures"]]
    table(to, "", ("figure", "latest", "usual", "days", "state"), rows)
    for one in result["figures"][: result["changed"]]:
        line(to, one["text"], style="yellow")
    notes(to, result["notes"])
    line(to, f"page: {result['page']}")
