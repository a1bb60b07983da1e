"""The command `recsys bench`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.compare import Html, with_page
from recsys_cli.cli.params import Config, Overrides, current_config, joined, split_arguments
from recsys_cli.cli.quantities import amount, duration
from recsys_cli.cli.run import prepare
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, table
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import RunConfig
    from recsys_cli.evaluation.compare.leaderboard import Leaderboard, LeaderboardRow, PublishedComparison, SeededScore


Protocol = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Download, prepare and compare as published (recsys ls protocols), instead of CONFIG.",
        show_default=False,
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="With --protocol: take this file, archive or folder instead of downloading."),
]
Metric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Sort by this metric instead of the first one of bench.metrics.", show_default=False
    ),
]


def bench(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    protocol: Protocol = None,
    from_file: FromFile = None,
    metric: Metric = None,
    html: Html = None,
) -> None:
    """Prepare the data, train and evaluate several models; print a leaderboard.

    The bench section of the config lists models and seeds; all use the same data. Each combination is an ordinary run. Finished
    runs are reused, so an interrupted bench continues, and failed runs are repeated.

    recsys bench --protocol s3-toys repeats a published evaluation, with the published figures next to ours.
    """
    session: Session = ctx.obj
    changes = joined(config, overrides)
    line = changes if protocol is None else [str(_protocol_config(protocol, changes)), *changes]
    if protocol is None and from_file is not None:
        raise ConfigError("--from-file needs --protocol", hint="recsys download takes the files of a dataset")
    with current_config(session, line) as settings:
        from recsys_cli.stages.bench import bench, bench_section

        bench_section(settings)  # before any work
        prepare(session, settings, from_file=from_file)
        with session.working("bench") as emit:
            noted = settings if protocol is None else _with_changes(settings, Path(line[0]), changes)
            leaderboard = bench(noted, session.workspace, metric=metric, html=html, emit=emit)

    session.report(with_page(leaderboard, html), draw)


def _with_changes(settings: RunConfig, path: Path, changes: Sequence[str]) -> RunConfig:
    """Return the config of a protocol with its overrides among the notes."""
    effective = [change for number, change in enumerate(changes) if _has_effect(path, changes[:number], change)]
    if settings.protocol is None or not effective:
        return settings
    notes = (*settings.protocol.notes, f"changed from the protocol: {' '.join(effective)}")
    return settings.model_copy(update={"protocol": settings.protocol.model_copy(update={"notes": notes})})


def _has_effect(path: Path, before: Sequence[str], change: str) -> bool:
    """Whether an override changes the models of a bench, or what is shown of them."""
    from recsys_cli.config import load

    try:
        one, other = (_benched(load(path, overrides)) for overrides in (before, [*before, change]))
    except ConfigError:  # valid with the overrides after it
        return True
    return one != other


def _benched(config: RunConfig) -> list[dict[str, Any]]:
    from recsys_cli.config import with_model

    if (bench := config.bench) is None:
        return []
    cells = [with_model(config, model, seed=seed) for model in bench.models for seed in bench.seeds]
    return [bench.model_dump(), *(cell.model_dump(exclude={"protocol"}) for cell in cells)]


def _protocol_config(name: str, line: Sequence[str]) -> Path:
    """Return the config of a protocol; the rest of the line has overrides only."""
    from recsys_cli.protocols import path_of

    if split_arguments(line)[0] is not None:
        raise ConfigError(
            f"--protocol {name} has a config of its own", hint=f"leave out {line[0]}, or bench it without --protocol"
        )
    if Path(name).suffix in {".yaml", ".yml"}:
        raise ConfigError(f"--protocol names a published protocol, and {name} is a config", hint=f"recsys bench {name}")
    return path_of(name)


Cell = tuple[str, str]
"""A value and its addition, on the same line or, in a narrow terminal, below."""
Columns = dict[str, list[Cell]]
_SAME = "="
_INTERVAL, _TRAINING, _PARAMETERS = "95 % interval", "training", "parameters"
_TEXT = 2
"""Number of text columns, from the left."""
_BETWEEN = 3
"""Spaces between two columns."""
_NAME = 16
"""Minimum width of the model column in characters."""


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the leaderboard, the failures and the verdict."""
    from recsys_cli.evaluation.compare.leaderboard import RETRY_NOTE, Leaderboard, failures_in_words, in_words
    from recsys_cli.metrics.named import title_of

    board = Leaderboard.model_validate({key: value for key, value in result.items() if key != "report"})
    title = f"{board.split}: {board.users:,} users, {board.rows:,} rows; by {title_of(board.metric)}"
    columns = _fitting(_columns(board), width=to.width)
    table(to, title, list(columns), zip(*columns.values(), strict=True), text=_TEXT)
    line(to, in_words(board))
    line(to, "; ".join(_marks(board)), style="dim")
    if board.published is not None:
        _draw_published(to, board, board.published)
    for run, message, hint in failures_in_words(board):
        line(to, f"{run} failed: {message}{f' ({hint})' if hint else ''}", style="yellow")
    if board.failures:
        line(to, RETRY_NOTE, style="dim")
    if result["report"]:
        line(to, f"page: {result['report']}")


def _draw_published(to: Console, board: Leaderboard, published: PublishedComparison) -> None:
    """Draw the published models and ours in one table, and the verdicts."""
    from recsys_cli.evaluation.compare.leaderboard import LEVEL_NOTE, one_table, variant_table

    heads, cells = one_table(board.standings, published, board.metrics)
    table(to, f"published: {published.paper}", heads, cells, text=2)
    line(to, published.data_in_words, style="yellow" if published.differences or published.verified != "digest" else "")
    if published.variants:
        table(to, "ours on other splits", *variant_table(board), text=2)
    for text in (*(one.text for one in published.variants), LEVEL_NOTE, *published.notes, *published.sources):
        line(to, text, style="dim")


def _columns(board: Leaderboard) -> Columns:
    from recsys_cli.metrics.named import title_of

    lines, seeds = board.standings, len(board.seeds)
    figures = {title_of(metric): [_figure(one.scores[metric], seeds) for one in lines] for metric in board.metrics}
    of_seeds = {"seeds": [(one.seeds_in_words(seeds=seeds), "") for one in lines]} if seeds > 1 else {}
    return {
        "": [(_rank(one, board.metric), "") for one in lines],
        "model": [(one.called, "") for one in lines],
        **figures,
        _INTERVAL: [_interval(one.scores[board.metric]) for one in lines],
        **of_seeds,
        _TRAINING: [("" if one.seconds is None else duration(one.seconds), "") for one in lines],
        _PARAMETERS: [("" if one.parameters is None else amount(one.parameters), "") for one in lines],
    }


def _fitting(columns: Columns, *, width: int) -> dict[str, list[str]]:
    """Fit a table: move the additions of cells below, then drop columns."""
    fitting = {heading: [" ".join(filter(None, cell)) for cell in cells] for heading, cells in columns.items()}
    if _width(fitting) <= width:
        return fitting
    fitting = {
        heading: [text if not below or below.endswith("–") else f"{text}\n{below}" for text, below in cells]
        for heading, cells in columns.items()
    }
    for heading in (_PARAMETERS, _INTERVAL, _TRAINING):
        if _width(fitting) > width:
            del fitting[heading]
    return fitting


def _width(columns: Mapping[str, list[str]]) -> int:
    """Return the width of a table with wrapped model names."""
    cells = [
        [*heading.split(), *(line for text in texts for line in text.split("\n"))] for heading, texts in columns.items()
    ]
    widest = [max(map(len, lines)) for lines in cells]
    return sum([widest[0], min(widest[1], _NAME), *widest[_TEXT:]]) + _BETWEEN * (len(columns) - 1)


def _rank(one: LeaderboardRow, metric: str) -> str:
    return "" if one.scores[metric].value is None else f"{one.place}{_SAME if one.is_same_as_best else ''}"


def _figure(score: SeededScore, seeds: int) -> Cell:
    mean, deviation = score.in_words(seeds=seeds)
    return mean, f"± {deviation:>6}" if deviation else ""


def _interval(score: SeededScore) -> Cell:
    defined = score.low is not None and score.high is not None
    return (f"[{score.low:.4f},", f"{score.high:.4f}]") if defined else ("", "")


def _marks(board: Leaderboard) -> Iterator[str]:
    yield f"{_SAME} not significantly different from the best"
    yield "(baseline): part of every evaluation"
    if len(board.seeds) > 1:
        yield f"± standard deviation over {len(board.seeds)} seeds, included in the intervals"
        if any(one.deterministic for one in board.standings):
            yield "any seed: deterministic, a single run"
    yield from board.notes
