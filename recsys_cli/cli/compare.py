"""The command `recsys compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recsys_cli.cli.session import Session
from recsys_cli.errors import RecsysError

if TYPE_CHECKING:
    from recsys_cli.evaluation.compare.comparison import Comparison

Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write a self-contained HTML page.", show_default=False, dir_okay=False
    ),
]


def compare(
    ctx: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="Evaluated runs (name, its beginning or end, or its model).", show_default=False
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="RUN", help="Compare with this run instead of the first.", show_default=False
        ),
    ] = None,
    html: Html = None,
) -> None:
    """Compare evaluated runs by paired significance tests.

    The runs need the same evaluation task: equal users and rows. Each difference has a 95 % interval and a paired test with a
    correction for multiple comparisons. Insignificant differences are marked as noise.
    """
    from recsys_cli.cli.results import compare as shown

    session: Session = ctx.obj
    from recsys_cli.stages.compare import compare

    comparison = compare(runs, session.workspace, against=against, html=html)
    if {run.run for run in comparison.runs} - {*runs, against}:
        comparison = _with_other_data(session, comparison)
    session.answer(shown.result(comparison, html=html), shown.draw)


def _with_other_data(session: Session, comparison: Comparison) -> Comparison:
    """Note the runs, found by a model or a part of their name, that are not of the data of the current config."""
    from recsys_cli.cli.params import read_config
    from recsys_cli.stages.etl import prepared_data

    try:
        current = prepared_data(read_config(session, []), session.workspace).folder.name
    except RecsysError:  # no current config, or its data is not prepared
        return comparison
    others = [f"{run.run} is of data {run.data}" for run in comparison.runs if Path(run.data).name != current]
    note = f"Not the data of the current config, {current}: {'; '.join(others)}."
    return comparison.model_copy(update={"notes": (*comparison.notes, note)}) if others else comparison
