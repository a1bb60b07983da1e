"""The command `recsys tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from recsys_cli.cli.params import Config, Force, Overrides, current_config, joined
from recsys_cli.cli.session import Session


def tune(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="Total number of trials; same as tune.trials=N.")
    ] = None,
    force: Force = False,
) -> None:
    """Search hyperparameters of the model and its training.

    The tune section of the config defines the search space. An interrupted search continues; raise --trials to extend a finished
    one.
    """
    from recsys_cli.cli.results import tune as shown

    session: Session = ctx.obj
    line = [*joined(config, overrides), *([f"tune.trials={trials}"] if trials is not None else ())]
    with current_config(session, line) as settings, session.working("tune") as emit:
        from recsys_cli.stages.tune import tune

        study = tune(settings, session.workspace, force=force, emit=emit)
    session.report(shown.result(study), shown.draw)
