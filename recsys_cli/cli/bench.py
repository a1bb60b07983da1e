"""`recsys bench` as a command."""

from __future__ import annotations

from typing import Annotated

import typer

from recsys_cli.cli.compare import Html, Latex, in_one_form
from recsys_cli.cli.params import Config, Overrides, joined, settled
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
            help="Sort by this figure instead of the first of bench.metrics.",
            show_default=False,
        ),
    ] = None,
    html: Html = None,
    latex: Latex = False,
) -> None:
    """Train and measure several models on the same data, and rank them.

    Which models and seeds stands in the config's bench section. Each is an ordinary run: what is there is not trained again, so a
    bench that was interrupted goes on, and what failed is tried again.
    """
    from recsys_cli.cli.results import bench as shown

    session: Session = ctx.obj
    in_one_form(session, latex=latex)
    with settled(session, joined(config, overrides)) as wanted, session.working("bench") as emit:
        from recsys_cli.stages.bench import bench

        found = bench(wanted, session.workspace, metric=metric, html=html, emit=emit)
    if latex and session.is_first:
        from recsys_cli.evaluation.compare.latex import paper_leaderboard

        typer.echo(paper_leaderboard(found))
        return
    session.report(shown.result(found, html=html), shown.draw)
