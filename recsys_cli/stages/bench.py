"""`recsys bench`: several models on the same data, each with several seeds, ranked in one table.

Each model with each seed is an ordinary run of the workspace, found again by its key: a bench that was broken off goes on where it
was, a model that was trained before is not trained again, and one that failed is tried again. A deterministic model has one run,
which counts for all seeds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from recsys_cli.config import BenchConfig, RunConfig, with_model
from recsys_cli.config.bench import not_measured
from recsys_cli.errors import ConfigError, RecsysError, TrainingError
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, standings_of
from recsys_cli.evaluation.compare.leaderboard_page import show
from recsys_cli.evaluation.compare.runs import rankings_of
from recsys_cli.events import Emit, Event, Message, Progress, ignore
from recsys_cli.metrics.named import better_of, check_reported
from recsys_cli.stages.bench_grid import BenchCell, cells_of, seconds_left
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.run_selection import run_key, unfinished_run
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_text


@dataclass
class _Made:
    """What there is so far, by label.

    Attributes:
        runs: Evaluated ones.
        took: Seconds of each cell, of one that was there already those of its training.
        failures: What could not be made, as a leaderboard has it.
    """

    runs: dict[str, list[TrainedRun]] = field(default_factory=dict)
    took: dict[str, list[float]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)


def bench(
    config: RunConfig,
    workspace: Workspace,
    *,
    metric: str | None = None,
    html: Path | None = None,
    emit: Emit = ignore,
) -> Leaderboard:
    """Train and measure what is not yet, and put the models in order.

    Args:
        config: The experiment, with a `bench` section.
        workspace: Where the prepared data is and the runs go.
        metric: The figure to sort by; the first of `bench.metrics` where left out.
        html: Where to write the page.
        emit: Is told how it goes.

    Raises:
        ConfigError: There is no `bench` section, or no such metric.
        MissingArtifactError: The data is not prepared.
        TrainingError: No model could be trained and measured.
        KeyboardInterrupt: It was interrupted; the next call goes on in the middle of the run.
    """
    return bench_on(prepared_data(config, workspace), config, workspace, metric=metric, html=html, emit=emit)


def bench_on(
    data: PreparedData,
    config: RunConfig,
    workspace: Workspace,
    *,
    metric: str | None = None,
    html: Path | None = None,
    emit: Emit = ignore,
) -> Leaderboard:
    """Make the bench on given data; see `bench`."""
    wanted = _wanted(config)
    metrics = _metrics(config, wanted, metric)
    cells = cells_of(wanted)
    made = _Made()
    emit(Progress("bench", 0, len(cells), unit="runs"))
    for number, cell in enumerate(cells, start=1):
        emit(Message(f"{number} of {len(cells)}: {cell}"))
        _make(cell, made, data, config, workspace, emit)
        gc.collect()
        torch.cuda.empty_cache()
        left = seconds_left(cells[number:], made.took)
        emit(Progress("bench", number, len(cells), unit="runs", left=left))
    found = _leaderboard(config, cells, made, metrics, data)
    if html is not None:
        write_text(html, show(found))
    return found


def _wanted(config: RunConfig) -> BenchConfig:
    if config.bench is None:
        raise ConfigError(
            "the config has no bench section, which says what models to compare",
            hint="such as  bench: {models: [popularity, mlp, {name: mf, embedding_dim: 64}], seeds: [1, 2, 3]}",
        )
    return config.bench


def _metrics(config: RunConfig, wanted: BenchConfig, metric: str | None) -> tuple[str, ...]:
    """Return the figures to show, as an evaluation calls them, the one to sort by first."""
    if metric is not None:
        check_reported(metric)
    chosen = dict.fromkeys((*(() if metric is None else (metric,)), *wanted.metrics))
    if missing := not_measured(chosen, config.evaluate.k, config.evaluate.metrics):
        raise ConfigError("; ".join(missing), hint="such as evaluate.k=[10,50]")
    return tuple(f"{config.evaluate.label}{name}" if "@" in name else name for name in chosen)


def _make(
    cell: BenchCell, made: _Made, data: PreparedData, config: RunConfig, workspace: Workspace, emit: Emit
) -> None:
    """Train and measure a cell, from wherever it was left."""
    started = time.perf_counter()
    known = 0.0
    try:
        own = with_model(config, cell.model, seed=cell.seed)
        resume = unfinished_run(workspace, run_key(own, data)) is not None
        run = train_on(data, own, workspace, resume=resume, emit=_quieter(emit)).artifact
        run = evaluate(run, workspace, config=own.evaluate, emit=_quieter(emit)).artifact
        made.runs.setdefault(cell.label, []).append(run)
        known = run.manifest["seconds"]["train"]
    except Exception as error:  # a model that cannot be trained is no reason to leave out those that can
        made.failures.append(_failure(cell, error))
        emit(Message(f"{cell} failed: {made.failures[-1]['message']}", "warning"))
    made.took.setdefault(cell.label, []).append(max(known, time.perf_counter() - started))


def _quieter(emit: Emit) -> Emit:
    """Let bars and warnings through, and none of the lines that one run by itself would write."""

    def tell(event: Event) -> None:
        if isinstance(event, Progress) or event.level == "warning":
            emit(event)

    return tell


def _failure(cell: BenchCell, error: Exception) -> dict[str, Any]:
    if isinstance(error, RecsysError):
        return {"label": cell.label, "seed": cell.seed, "message": error.message, "hint": error.hint}
    return {"label": cell.label, "seed": cell.seed, "message": f"{type(error).__name__}: {error}", "hint": None}


def _leaderboard(
    config: RunConfig, cells: Sequence[BenchCell], made: _Made, metrics: tuple[str, ...], data: PreparedData
) -> Leaderboard:
    if not made.runs:
        last = made.failures[-1]
        raise TrainingError(
            f"none of {len(made.failures)} runs could be made; the last one, {last['label']}: {last['message']}",
            hint=last["hint"],
        )
    rankings = rankings_of(next(iter(made.runs.values()))[0])
    options = config.evaluate
    deterministic = {cell.label for cell in cells if cell.deterministic}
    return Leaderboard(
        metric=metrics[0],
        better=better_of(metrics[0]),
        metrics=metrics,
        data=data.folder.name,
        dataset=config.dataset.called,
        split=rankings.split,
        users=len(rankings.users),
        rows=len(rankings.labels),
        seeds=_wanted(config).seeds,
        standings=standings_of(
            made.runs, metrics, deterministic=deterministic, resamples=options.bootstrap, seed=options.seed
        ),
        failures=tuple(made.failures),
        protocol=rankings.protocol,
    )
