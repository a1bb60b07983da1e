"""The command forget: users and items removed from the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, notes, table
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


_Ids = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="Id to remove; may be repeated.", show_default=False)
]


def forget(
    ctx: typer.Context,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Further folders, such as bundles elsewhere.", show_default=False),
    ] = None,
    user: _Ids = None,
    item: _Ids = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the places.")] = False,
) -> None:
    """Remove users or items from data, models, exports and feedback; write a receipt."""
    session: Session = ctx.obj
    given = [*(user or ()), *(item or ())]
    if not given or not all(map(str.strip, given)):
        raise ConfigError("forget needs an id", hint="recsys forget --user ID, or --item ID")
    if missing := [folder for folder in (session.root, *(folders or ())) if not folder.is_dir()]:
        raise ConfigError(
            f"{missing[0]} is no folder", hint="name the workspace, and folders of exports or recommendations"
        )
    with session.working("forget") as emit:
        from recsys_cli.features.schema import Role
        from recsys_cli.stages.forget import forget

        ids = {Role.USER: user or [], Role.ITEM: item or []}
        result = forget(ids, session.workspace, folders=folders or (), dry_run=dry_run, emit=emit)
    session.report(result, _draw)
    if result["left"] and not dry_run:
        raise typer.Exit(3)  # a missing run


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    table(to, "", ("place", "done"), [(one["path"], one["done"]) for one in result["places"]], text=2)
    table(to, "sources, unchanged", ("source", "has the ids"), list(result["sources"].items()), text=2)
    if {*result["sources"].values()} - {"no"}:
        notes(to, ["the next update or etl of these sources may bring the ids back: remove them there"])
    if result["places"]:
        notes(to, ["restart running servers; fitted statistics keep their share of the rows until a new recsys etl"])
    nothing = "" if result["places"] else "no place has the ids; "
    line(to, nothing + (f"receipt: {result['receipt']}" if result["receipt"] else "nothing changed: --dry-run"))
