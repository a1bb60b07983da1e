"""The command `recsys compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.serve import PositiveAbove
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, notes, table
from recsys_cli.errors import ConfigError, RecsysError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from recsys_cli.evaluation.compare.comparison import Comparison


Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a self-contained HTML page.", show_default=False, dir_okay=False),
]


def compare(
    ctx: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Evaluated runs (name, its beginning or end, or its model); or shares, such as main=0.9 test=0.1.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Compare with this run or arm instead of the first.", show_default=False),
    ] = None,
    html: Html = None,
    feedback: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Compare traffic shares in this feedback log.", show_default=False),
    ] = None,
    positive_above: PositiveAbove = None,
) -> None:
    """Compare evaluated runs by paired significance tests, or traffic shares of the server by their feedback.

    The runs need the same evaluation task: equal users and rows. Each difference has a 95 % interval and a paired test with a
    correction for multiple comparisons. A difference whose interval excludes zero may still not
    be significant after the correction.

    With --feedback, hits are positive feedback, users are units, and intervals hold at any look.
    """
    session: Session = ctx.obj
    from recsys_cli.stages.compare import compare, compare_arms

    runs = runs or []
    if feedback is not None:
        if html is not None:
            raise ConfigError("--html has no page of --feedback", hint="use --json")
        arms = compare_arms(feedback, runs, against=against, positive_above=positive_above)
        session.answer(asdict(arms), _draw_arms)
        return
    comparison = compare(runs, session.workspace, against=against, html=html)
    if {run.run for run in comparison.runs} - {*runs, against}:
        comparison = _with_other_data(session, comparison)
    session.answer(with_page(comparison, html), draw)


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


def with_page(made: BaseModel, html: Path | None) -> dict[str, Any]:
    """Return a comparison or a leaderboard, and the path of its page, as plain values."""
    return {**made.model_dump(mode="json"), "report": None if html is None else str(html)}


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


def _draw_arms(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the arms and their verdicts."""
    columns = ("arm", "share", "users", "with hits", "hits", "hits at full traffic")
    formats = {"share": ".1%", "users": ",", "users_with_hits": ",", "hits": ",", "at_full_traffic": ",.0f"}
    rows = [(arm["name"], *(format(arm[name], how) for name, how in formats.items())) for arm in result["arms"]]
    table(to, "", columns, rows)
    for arm in result["arms"][1:]:
        verdict = f"{arm['verdict']} than {result['against']}" if arm["verdict"] else "no verdict yet"
        ends = "too few users with hits"
        if arm["ratio"] is not None:
            ends = (
                f"{arm['ratio']:.2f} times the hits per user; 95 % at any look: {arm['low']:.2f} to {arm['high']:.2f}"
            )
        line(to, f"{arm['name']}: {verdict} ({ends})")
    counted = {
        "assigned": "events without an arm are assigned by the given shares",
        "left_out": "events without an arm, or of a time with one bundle, are left out",
        "damaged": "damaged lines of the log are skipped",
    }
    notes(to, (f"{result[name]:,} {text}" for name, text in counted.items() if result[name]))
