"""The command `recsys compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, notes, table
from recsys_cli.errors import RecsysError

if TYPE_CHECKING:
    from rich.console import Console

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
    correction for multiple comparisons. A difference whose interval excludes zero may still not
    be significant after the correction.
    """
    session: Session = ctx.obj
    from recsys_cli.stages.compare import compare

    comparison = compare(runs, session.workspace, against=against, html=html)
    if {run.run for run in comparison.runs} - {*runs, against}:
        comparison = _with_other_data(session, comparison)
    session.answer(result(comparison, html=html), draw)


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


def result(comparison: Comparison, *, html: Path | None) -> dict[str, Any]:
    """Return the comparison and the path of its page as plain values."""
    return {**comparison.model_dump(mode="json"), "report": None if html is None else str(html)}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the differences of each run and the conclusions."""
    from recsys_cli.evaluation.compare.comparison import METHOD, Comparison, table_of

    comparison = Comparison.model_validate({key: value for key, value in result.items() if key != "report"})
    for label in comparison.others:
        title = f"{comparison.called(label)} against {comparison.called(comparison.against)}"
        table(to, title, *table_of(comparison, label))
    for sentence in comparison.sentences:
        line(to, sentence)
    notes(to, comparison.notes)
    line(to, f"{METHOD} Number of tests: {comparison.tests}.", style="dim")
    if result["report"]:
        line(to, f"page: {result['report']}")
