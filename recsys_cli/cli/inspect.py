"""The command `recsys inspect`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.session import Session


class InspectedKind(StrEnum):
    """Users or items."""

    USER = "user"
    ITEM = "item"


def inspect(
    ctx: typer.Context,
    kind: Annotated[InspectedKind, typer.Argument(metavar="user|item", help="Kind of the ID.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Id in the raw data, such as a movieId, or the title of an item.", show_default=False
        ),
    ],
    run: Annotated[
        str | None,
        typer.Option(
            help="Run (name, its beginning or end, or its model). Default: the best run of the current data on valid.",
            metavar="RUN",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    k: Annotated[int, typer.Option("--k", help="Rows per list.", min=1)] = 10,
) -> None:
    """Show history, recommendations and hits of a user or an item."""
    from recsys_cli.cli.results import inspect as shown
    from recsys_cli.cli.runs import named_run
    from recsys_cli.stages.inspect import inspect_item, inspect_user

    session: Session = ctx.obj
    with session.working("inspect") as emit:
        trained = named_run(session, run, emit)
    if kind is InspectedKind.USER:
        session.answer(inspect_user(trained, session.workspace, name, k=k), shown.draw_user)
    else:
        session.answer(inspect_item(trained, session.workspace, name, k=k), shown.draw_item)
