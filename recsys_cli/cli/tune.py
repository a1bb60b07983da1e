"""`recsys tune` as a command."""

from __future__ import annotations

from typing import Annotated

import typer

from recsys_cli.cli.params import Config, Force, Overrides, joined, settled
from recsys_cli.cli.session import Session


def tune(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="The same as tune.trials=N: how many there are in all.")
    ] = None,
    force: Force = False,
) -> None:
    """Search values of the model and its training.

    What to search stands in the config's tune section. A search that was interrupted goes on; one that is over takes more
    trials.
    """
    from recsys_cli.cli.results import tune as shown

    session: Session = ctx.obj
    line = [*joined(config, overrides), *([f"tune.trials={trials}"] if trials is not None else ())]
    with settled(session, line) as wanted, session.working("tune") as emit:
        from recsys_cli.stages.tune import tune

        made = tune(wanted, session.workspace, force=force, emit=emit)
    session.report(shown.result(made), shown.draw)
