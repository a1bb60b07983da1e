"""`recsys bench`: several models on the same data, each with several seeds, ranked in one table.

Each model with each seed is an ordinary run of the workspace, found again by its key: a bench that was broken off goes on where it
was, and a model that was trained before is not trained again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from recsys_cli.config import BenchConfig, BenchModel, RunConfig, with_model
from recsys_cli.config.bench import missing_cut_offs
from recsys_cli.errors import ConfigError, RecsysError, TrainingError
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, standings_of
from recsys_cli.evaluation.compare.leaderboard_page import show
from recsys_cli.evaluation.compare.runs import rankings_of
from recsys_cli.evaluation.metrics.named import better_of, check_figure
from recsys_cli.events import Emit, Event, Message, Progress, ignore
from recsys_cli.stages.choice import run_key, unfinished_run
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_text


@dataclass(frozen=True)
class Cell:
    """One model with one seed."""

    label: str
    model: BenchModel
    seed: int

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"


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
    cells = list(_cells(wanted))
    runs: dict[str, list[TrainedRun]] = {}
    failures: list[dict[str, Any]] = []
    for number, cell in enumerate(cells, start=1):
        emit(Message(f"{number} of {len(cells)}: {cell}"))
        try:
            runs.setdefault(cell.label, []).append(_made(cell, data, config, workspace, emit))
        except Exception as error:  # a model that cannot be trained is no reason to leave out those that can
            failures.append(_failure(cell, error))
            emit(Message(f"{cell} failed: {failures[-1]['message']}", "warning"))
        gc.collect()
        torch.cuda.empty_cache()
        emit(Progress("bench", number, len(cells), unit="runs"))
    found = _leaderboard(
        config, {label: several for label, several in runs.items() if several}, metrics, failures, data
    )
    if html is not None:
        write_text(html, show(found))
    return found


def _wanted(config: RunConfig) -> BenchConfig:
    if config.bench is None:
        raise ConfigError(
            "the config has no bench section, which says what models to compare",
            hint="such as  bench: {models: [popularity, mlp, {name: mf, dim: 64}], seeds: [1, 2, 3]}",
        )
    return config.bench


def _metrics(config: RunConfig, wanted: BenchConfig, metric: str | None) -> tuple[str, ...]:
    """Return the figures to show, as an evaluation calls them, the one to sort by first."""
    if metric is not None:
        check_figure(metric)
    chosen = dict.fromkeys((*(() if metric is None else (metric,)), *wanted.metrics))
    if missing := missing_cut_offs(chosen, config.evaluate.k):
        raise ConfigError("; ".join(missing), hint="such as evaluate.k=[10,50]")
    return tuple(f"{config.evaluate.label}{name}" if "@" in name else name for name in chosen)


def _cells(wanted: BenchConfig) -> Iterator[Cell]:
    """Yield all models with the first seed, then all with the next: a bench that is broken off has something of each."""
    for seed in wanted.seeds:
        for label, model in zip(wanted.labels, wanted.models, strict=True):
            yield Cell(label, model, seed)


def _made(cell: Cell, data: PreparedData, config: RunConfig, workspace: Workspace, emit: Emit) -> TrainedRun:
    """Return the evaluated run of a cell, from wherever it was left."""
    own = with_model(config, cell.model, seed=cell.seed)
    resume = unfinished_run(workspace, run_key(own, data)) is not None
    run = train_on(data, own, workspace, resume=resume, emit=_quieter(emit)).artifact
    return evaluate(run, workspace, config=own.evaluate, emit=_quieter(emit)).artifact


def _quieter(emit: Emit) -> Emit:
    """Let bars and warnings through, and none of the lines that one run by itself would write."""

    def tell(event: Event) -> None:
        if isinstance(event, Progress) or event.level == "warning":
            emit(event)

    return tell


def _failure(cell: Cell, error: Exception) -> dict[str, Any]:
    if isinstance(error, RecsysError):
        return {"label": cell.label, "seed": cell.seed, "message": error.message, "hint": error.hint}
    return {"label": cell.label, "seed": cell.seed, "message": f"{type(error).__name__}: {error}", "hint": None}


def _leaderboard(
    config: RunConfig,
    runs: dict[str, list[TrainedRun]],
    metrics: tuple[str, ...],
    failures: list[dict[str, Any]],
    data: PreparedData,
) -> Leaderboard:
    if not runs:
        last = failures[-1]
        raise TrainingError(
            f"none of {len(failures)} runs could be made; the last one, {last['label']}: {last['message']}",
            hint=last["hint"],
        )
    rankings = rankings_of(next(iter(runs.values()))[0])
    options = config.evaluate
    return Leaderboard(
        metric=metrics[0],
        better=better_of(metrics[0]),
        metrics=metrics,
        data=data.folder.name,
        split=rankings.split,
        users=len(rankings.users),
        rows=len(rankings.labels),
        seeds=_wanted(config).seeds,
        standings=standings_of(runs, metrics, resamples=options.bootstrap, seed=options.seed),
        failures=tuple(failures),
        protocol=rankings.protocol,
    )
