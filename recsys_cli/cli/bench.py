"""The command `recsys bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.compare import Html
from recsys_cli.cli.params import Config, Overrides, current_config, joined, split_arguments
from recsys_cli.cli.run import prepare
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig


Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="Download, prepare and compare as published (recsys ls protocols), instead of CONFIG.",
        show_default=False,
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        metavar="PATH",
        help="With --protocol: take this file, archive or folder instead of downloading.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Sort by this metric instead of the first one of bench.metrics.",
        show_default=False,
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
    from recsys_cli.cli.results import bench as shown

    session.report(shown.result(leaderboard, html=html), shown.draw)


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
