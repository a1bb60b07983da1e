"""Grid of a bench: models × seeds."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recsys_cli.config import BenchConfig, BenchModel, RunConfig, with_model
from recsys_cli.config.bench import not_measured
from recsys_cli.errors import ConfigError, RecsysError, TrainingError
from recsys_cli.etl.report import Facts
from recsys_cli.evaluation.compare.comparison import rankings_of
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, PublishedComparison, compare_published, standings_of
from recsys_cli.evaluation.compare.pages import leaderboard_page
from recsys_cli.events import Emit, Message, Progress, divert_messages, ignore
from recsys_cli.features.split import SPLITS
from recsys_cli.metrics.named import better_of, check_reported
from recsys_cli.models import kind_of
from recsys_cli.stages.bench_variants import run_variants
from recsys_cli.stages.cluster import open_cluster
from recsys_cli.stages.etl import etl, prepared_data, warn_of
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, check_output, write_text


@dataclass(frozen=True)
class BenchCell:
    """One run of a bench; that of a deterministic model counts for all seeds."""

    label: str
    model: BenchModel
    seed: int
    deterministic: bool = False

    def __str__(self) -> str:
        return self.label if self.deterministic else f"{self.label}, seed {self.seed}"


def cells_of(bench: BenchConfig) -> list[BenchCell]:
    """Return the cells in order: all models with the first seed, then the stochastic ones with each next seed.

    An interrupted bench thus has results of every model.
    """
    entries = [(*pair, _deterministic(pair[1].name)) for pair in zip(bench.labels, bench.models, strict=True)]
    first, *others = bench.seeds
    return [
        *(BenchCell(label, model, first, deterministic) for label, model, deterministic in entries),
        *(
            BenchCell(label, model, seed)
            for seed in others
            for label, model, deterministic in entries
            if not deterministic
        ),
    ]


def _deterministic(model: str) -> bool:
    try:
        return kind_of(model).deterministic
    except Exception:  # its own run reports the error
        return False


@dataclass
class _BenchResults:
    """Results of a bench so far, by label."""

    runs: dict[str, list[TrainedRun]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)


def bench(
    config: RunConfig, workspace: Workspace, *, metric: str | None = None, html: Path | None = None, emit: Emit = ignore
) -> Leaderboard:
    """Train and evaluate the missing runs of a bench, and rank the models by a metric, or the first of the section.

    Raises:
        ConfigError: The config has no `bench` section, or the metric is unknown.
        MissingArtifactError: The data is not prepared.
        TrainingError: All runs failed.
        KeyboardInterrupt: Interrupted; the next call resumes the run.
    """
    data = prepared_data(config, workspace)
    warn_of(data, emit)
    return bench_on(data, config, workspace, metric=metric, html=html, emit=emit)


def bench_on(
    data: PreparedData,
    config: RunConfig,
    workspace: Workspace,
    *,
    metric: str | None = None,
    html: Path | None = None,
    emit: Emit = ignore,
) -> Leaderboard:
    """Run the bench on prepared data; see `bench`."""
    if html is not None:
        check_output(html)
    section = bench_section(config)
    metrics = _metrics(config, section, metric)
    cells = cells_of(section)
    results = _BenchResults()
    emit(Progress("bench", 0, len(cells), unit="runs"))
    with open_cluster(config.etl.cluster, workspace, emit, workers=config.etl.workers) as cluster:
        # The loop below finds these runs finished, and repeats failed ones.
        task = partial(_run_cell, results=results, data=data, config=config, workspace=workspace, emit=ignore)
        for number, _ in enumerate(cluster.map(task, cells) if cluster else (), start=1):
            emit(Progress("bench on the cluster", number, len(cells), unit="runs"))
    for number, cell in enumerate(cells, start=1):
        emit(Message(f"{number} of {len(cells)}: {cell}"))
        _run_cell(cell, results, data, config, workspace, emit)
        gc.collect()
        torch.cuda.empty_cache()
        emit(Progress("bench", number, len(cells), unit="runs"))
    leaderboard = _leaderboard(config, cells, results, metrics, data)
    if config.protocol is not None:
        published = _published(leaderboard, config, data, workspace, metric=metric, emit=emit)
        leaderboard = leaderboard.model_copy(update={"published": published})
    if html is not None:
        write_text(html, leaderboard_page(leaderboard))
    return leaderboard


def _published(
    board: Leaderboard, config: RunConfig, data: PreparedData, workspace: Workspace, **how: Any
) -> PublishedComparison:
    def run(varied: RunConfig) -> Leaderboard:
        prepared = etl(varied, workspace, emit=how["emit"]).artifact
        return bench_on(prepared, varied, workspace, **how)

    protocol = config.protocol
    assert protocol is not None
    variants, notes = run_variants(config, Facts.read(data.facts), run) if protocol.variants else ((), ())
    raw = workspace.raw(config.dataset.name)
    facts = raw.manifest.get("facts", {}) if raw.exists else {}
    section = bench_section(config)
    return compare_published(
        protocol.model_copy(update={"notes": (*notes, *protocol.notes)}),
        board.standings,
        names={label: model.name for label, model in zip(section.labels, section.models, strict=True)},
        label=config.evaluate.label,
        rows={split: data.rows(split) for split in SPLITS},
        digests=facts.get("verified", {}),
        variants=variants,
    )


def bench_section(config: RunConfig) -> BenchConfig:
    """Return the `bench` section; a `ConfigError` without one."""
    if config.bench is None:
        raise ConfigError(
            "the config has no bench section with the models to compare",
            hint="add one, such as  bench: {models: [popularity, mlp, {name: mf, embedding_dim: 64}], seeds: [1, 2, 3]}",
        )
    return config.bench


def _metrics(config: RunConfig, section: BenchConfig, metric: str | None) -> tuple[str, ...]:
    """Return the metrics of the leaderboard; the sort metric comes first."""
    if metric is not None:
        check_reported(metric)
    chosen = dict.fromkeys((*(() if metric is None else (metric,)), *section.metrics))
    if missing := not_measured(chosen, config.evaluate.k, config.evaluate.metrics):
        raise ConfigError("; ".join(missing), hint="such as evaluate.k=[10,50]")
    return tuple(f"{config.evaluate.label}{name}" if "@" in name else name for name in chosen)


def _run_cell(
    cell: BenchCell, results: _BenchResults, data: PreparedData, config: RunConfig, workspace: Workspace, emit: Emit
) -> None:
    """Train and evaluate a cell, or resume it."""
    quiet = divert_messages(emit, lambda message: emit(message) if message.level == "warning" else None)
    try:
        own = with_model(config, cell.model, seed=cell.seed)
        run = train_on(data, own, workspace, resume=None, emit=quiet).artifact
        run = evaluate(run, workspace, config=own.evaluate, emit=quiet).artifact
        results.runs.setdefault(cell.label, []).append(run)
    except Exception as error:  # one failed model does not stop the others
        results.failures.append(_failure(cell, error))
        emit(Message(f"{cell} failed: {results.failures[-1]['message']}", "warning"))


def _failure(cell: BenchCell, error: Exception) -> dict[str, Any]:
    if isinstance(error, RecsysError):
        return {"label": cell.label, "seed": cell.seed, "message": error.message, "hint": error.hint}
    return {"label": cell.label, "seed": cell.seed, "message": f"{type(error).__name__}: {error}", "hint": None}


def _leaderboard(
    config: RunConfig, cells: Sequence[BenchCell], results: _BenchResults, metrics: tuple[str, ...], data: PreparedData
) -> Leaderboard:
    if not results.runs:
        last = results.failures[-1]
        raise TrainingError(
            f"all {len(results.failures)} runs failed; the last one, {last['label']}: {last['message']}",
            hint=last["hint"],
        )
    rankings = rankings_of(next(iter(results.runs.values()))[0])
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
        seeds=bench_section(config).seeds,
        standings=standings_of(
            results.runs, metrics, deterministic=deterministic, resamples=options.bootstrap, seed=options.seed
        ),
        failures=tuple(results.failures),
        protocol=rankings.protocol,
    )
