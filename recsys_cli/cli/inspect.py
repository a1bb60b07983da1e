"""`recsys inspect`: one user or one item, and what a run makes of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from recsys_cli.cli.params import config_path
from recsys_cli.cli.session import Session

if TYPE_CHECKING:
    from recsys_cli.workspace import TrainedRun


class InspectedKind(StrEnum):
    """What can be looked at."""

    USER = "user"
    ITEM = "item"


def inspect(
    ctx: typer.Context,
    thing: Annotated[InspectedKind, typer.Argument(metavar="user|item", help="What the ID is of.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="As the raw data has it, such as a movieId; or an item's title.", show_default=False
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option(
            help="Run (its name, or the beginning or end of it); left out: that of the config of the last stage.",
            metavar="RUN",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("--k", help="How many rows of each list to show.", min=1)] = 10,
) -> None:
    """Show one user or item by title: what was met, what the model recommends, and what of it came true."""
    from recsys_cli.cli.results import inspect as shown
    from recsys_cli.stages.inspect import inspect_item, inspect_user

    session: Session = ctx.obj
    meant = _run(session, run)
    if thing is InspectedKind.USER:
        session.answer(inspect_user(meant, session.workspace, name, k=k), shown.draw_user)
    else:
        session.answer(inspect_item(meant, session.workspace, name, k=k), shown.draw_item)


def _run(session: Session, name: str | None) -> TrainedRun:
    from recsys_cli.cli.runs import find_run, finished
    from recsys_cli.config import load

    if name is not None:
        return finished(session.workspace.run(name))
    return find_run(load(config_path(session, None)), session.workspace)
