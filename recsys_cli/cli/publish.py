"""The commands `recsys publish` and `recsys rollback`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.events import Emit
    from recsys_cli.stages.publish import Publication, Version

_Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Folder of versions, or name of an updated config.", show_default=False)
]
_What = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|DELTA",
        help="Run, as of export, or file of the deltas of another machine.",
        show_default="the best run of the current data on valid",
        autocompletion=complete_run,
    ),
]


def publish(ctx: typer.Context, folder: _Folder, what: _What = None) -> None:
    """Serve a run, or a delta, as the next version in a folder that servers follow."""
    from recsys_cli.cli.runs import named_run

    session: Session = ctx.obj

    def next_one(versions: Publication, emit: Emit) -> Version:
        if what is not None and (what.endswith(".delta") or Path(what).is_file()):
            return versions.apply(Path(what), emit)
        return versions.publish(named_run(session, what, emit), session.workspace, emit)

    _change("publish", session, folder, next_one)


def rollback(ctx: typer.Context, folder: _Folder) -> None:
    """Serve the version before the served one again."""
    _change("rollback", ctx.obj, folder, lambda versions, emit: versions.rollback(emit))


def _change(stage: str, session: Session, folder: str, change: Callable[[Publication, Emit], Version]) -> None:
    with session.working(stage) as emit:
        from recsys_cli.stages.publish import Publication

        versions = Publication.named(folder, session.workspace)
        named = {"before": versions.current, "served": change(versions, emit)}
        facts = {
            name: one and {"version": one.number, "key": one.key, **one.manifest["run"]} for name, one in named.items()
        }
    session.report({"folder": folder, **facts}, _draw)


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    served, before = result["served"], result["before"]
    for verb, one in (("serves", served), ("served", before)):
        if one and (one is served or one != served):
            line(
                to,
                f"{result['folder']} {verb} version {one['version']}: run {one['name']}, trained {one.get('trained')}",
            )
