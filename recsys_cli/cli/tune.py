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
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="N", help="Time limit of this call; same as tune.minutes=N.")
    ] = None,
    force: Force = False,
) -> None:
    """Search hyperparameters of the model and its training.

    The first trial has the config's own values. The tune section of the config defines the search space; without one it is the
    model's default. An interrupted search continues; raise --trials to extend a finished one.
    """
    from recsys_cli.cli.results import tune as shown

    session: Session = ctx.obj
    limits = {"trials": trials, "minutes": minutes}
    line = [*joined(config, overrides), *(f"tune.{key}={value}" for key, value in limits.items() if value is not None)]
    with current_config(session, line) as settings, session.working("tune") as emit:
        from recsys_cli.stages.tune import tune

        study = tune(settings, session.workspace, force=force, emit=emit)
    session.report(shown.result(study), shown.draw)
