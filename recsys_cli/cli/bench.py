"""The command `recsys bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from recsys_cli.cli.compare import Html, Latex, require_one_format
from recsys_cli.cli.params import Config, Overrides, current_config, joined
from recsys_cli.cli.session import Session


def bench(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Sort by this metric instead of the first one of bench.metrics.",
            show_default=False,
        ),
    ] = None,
    html: Html = None,
    latex: Latex = False,
) -> None:
    """Train and evaluate several models; print a leaderboard.

    The bench section of the config lists models and seeds; all use the same data. Each combination is an ordinary run. Finished
    runs are reused, so an interrupted bench continues, and failed runs are repeated.
    """
    from recsys_cli.cli.results import bench as shown

    session: Session = ctx.obj
    require_one_format(session, latex=latex)
    with current_config(session, joined(config, overrides)) as settings, session.working("bench") as emit:
        from recsys_cli.stages.bench import bench

        leaderboard = bench(settings, session.workspace, metric=metric, html=html, emit=emit)
    if latex and session.is_first:
        from recsys_cli.evaluation.compare.latex import paper_leaderboard

        typer.echo(paper_leaderboard(leaderboard))
        return
    session.report(shown.result(leaderboard, html=html), shown.draw)
