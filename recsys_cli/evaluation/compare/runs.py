"""Comparable runs: those with the same evaluation task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recsys_cli.config import yaml12
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, RecsysError
from recsys_cli.evaluation.compare.comparison import ComparedRun, Comparison, figures_of
from recsys_cli.evaluation.compare.format import joined, verdicts
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Evaluation
from recsys_cli.evaluation.selection import legend
from recsys_cli.metrics.named import COMPARED, title_of
from recsys_cli.workspace import TrainedRun, not_finished

_NOT_PART_OF_TASK = {"bootstrap", "batch_size", "title", "metrics"}


def rankings_of(run: TrainedRun) -> Rankings:
    """Read the rankings of a run's evaluation.

    Raises:
        MissingArtifactError: The run is not finished or not evaluated.
        DataError: The file is damaged, or of another version.
    """
    name = run.folder.name
    if not run.exists:
        raise not_finished(run)
    if not run.evaluation.is_file():
        raise MissingArtifactError(f"run {name} is not evaluated", hint=f"recsys evaluate {name}")
    run.verify_config()
    try:
        run.verify_evaluation()
        return Rankings.read(run.rankings)
    except RecsysError as error:
        kind = MissingArtifactError if isinstance(error, MissingArtifactError) else DataError
        raise kind(error.message, hint=f"recsys evaluate {name} --force") from error


def compare_runs(runs: Sequence[TrainedRun]) -> Comparison:
    """Test each run against the first."""
    names = [run.folder.name for run in runs]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        hint = "recsys compare RUN RUN; recsys status shows the runs"
        raise ConfigError(f"compare needs at least two different runs, but has {', '.join(names)}", hint=hint)
    all_rankings = [rankings_of(run) for run in runs]
    evaluations = [Evaluation.read(run.evaluation) for run in runs]
    compared = _labelled(runs, evaluations)
    for run, rankings in zip(runs[1:], all_rankings[1:], strict=True):
        check_problem((runs[0], all_rankings[0]), (run, rankings))
    systems = {
        one.label: Outcomes.of(rankings, metrics=measured_metrics(evaluation))
        for one, rankings, evaluation in zip(compared, all_rankings, evaluations, strict=True)
    }
    systems, notes = in_common(systems, all_rankings)
    if chosen := legend({one.label: one.selected for one in compared}, all_rankings[0].split):
        notes = (*notes, f"{chosen}.")
    metrics = list(next(iter(systems.values())).metrics)
    if not metrics:
        raise ConfigError(f"{' and '.join(names)} have no metric in common", hint=" ".join(notes) or None)
    options = evaluations[0].config
    figures = figures_of(systems, metrics, resamples=options.bootstrap, seed=options.seed)
    against, *others = systems
    users = len(all_rankings[0].users) if any(figure.unit == "users" for figure in figures) else 0
    rows = len(all_rankings[0].labels) if any(figure.unit == "rows" for figure in figures) else 0
    clusters = systems[against].impressions
    impressions = 0 if clusters is None else len(clusters.index)
    return Comparison(
        against=against,
        runs=compared,
        split=all_rankings[0].split,
        users=users,
        rows=rows,
        figures=figures,
        tests=len(figures) * len(others),
        sentences=tuple(verdicts(against, others, figures, users=users, rows=rows, impressions=impressions)),
        protocol=all_rankings[0].protocol,
        notes=notes,
    )


def check_problem(first: tuple[TrainedRun, Rankings], other: tuple[TrainedRun, Rankings]) -> None:
    """Check that two runs have the same evaluation task; the hint evaluates the second like the first."""
    (one_run, one), (two_run, two) = first, other
    if one.split == two.split and (one.problem == two.problem or not (len(one.users) and len(two.users))):
        return
    names = f"{one_run.folder.name} and {two_run.folder.name}"
    first_settings, other_settings = (_task_settings(run) for run in (one_run, two_run))
    changed = [key for key in first_settings if first_settings[key] != other_settings.get(key)]
    if changed:
        differences = "; ".join(
            f"evaluate.{key} is {yaml12.quoted(first_settings[key])} and {yaml12.quoted(other_settings.get(key))}"
            for key in changed
        )
        overrides = [f"evaluate.{key}={yaml12.quoted(first_settings[key])}" for key in changed]
        hint = shlex.join(["recsys", "evaluate", two_run.folder.name, *overrides])
        raise ConfigError(f"{names} have different evaluation settings: {differences}", hint=hint)
    raise ConfigError(
        f"{names} have different evaluation tasks: {_data(one_run)} and {_data(two_run)} differ in held-out rows, or in users or "
        "items of train",
        hint="train both on the same prepared data, or at least on the same split",
    )


def measured_metrics(evaluation: Evaluation) -> set[str]:
    """Return the model's defined pointwise and ranking metrics."""
    figures = {**evaluation.pointwise.get(MODEL, {}), **evaluation.ranking.get(MODEL, {})}
    return {name for name, estimate in figures.items() if estimate.value is not None}


def in_common(
    systems: Mapping[str, Outcomes], all_rankings: Sequence[Rankings]
) -> tuple[dict[str, Outcomes], tuple[str, ...]]:
    """Restrict systems to their common metrics, with notes on dropped ones; rows are dropped if their order differs."""
    notes: list[str] = []
    kept = dict(systems)
    if len({rankings.rows for rankings in all_rankings}) > 1:
        notes.append("Pointwise metrics are not compared: the runs have different rows, or rows in another order.")
        kept = {label: replace(one, rows={}) for label, one in kept.items()}
    without = [label for label, one in kept.items() if not one.users]
    if 0 < len(without) < len(kept):
        have = "have" if len(without) > 1 else "has"
        notes.append(f"Ranking metrics are not compared: {joined(without)} {have} no rankings.")
    for name in dict.fromkeys([*COMPARED, *(name for one in kept.values() for name in one.rows)]):
        lacking = [label for label, one in kept.items() if name not in one.rows]
        if 0 < len(lacking) < len(kept):
            have = "have" if len(lacking) > 1 else "has"
            notes.append(f"{title_of(name)} is not compared: {joined(lacking)} {have} none.")
    shared = set.intersection(*({*one.metrics} for one in kept.values()))
    return {label: one.only(shared) for label, one in kept.items()}, tuple(notes)


def _labelled(runs: Sequence[TrainedRun], evaluations: Sequence[Evaluation]) -> tuple[ComparedRun, ...]:
    models = [str(run.manifest["model"]) for run in runs]
    ends = [f"{model}-{run.key[:8]}" for model, run in zip(models, runs, strict=True)]
    labels = [
        model if models.count(model) == 1 else end if ends.count(end) == 1 else run.folder.name
        for model, end, run in zip(models, ends, runs, strict=True)
    ]
    return tuple(
        ComparedRun(
            label=label, run=run.folder.name, model=model, data=_data(run), dataset=one.dataset, selected=one.selected
        )
        for label, run, model, one in zip(labels, runs, models, evaluations, strict=True)
    )


def _data(run: TrainedRun) -> str:
    return str(run.manifest["data"]["folder"])


def _task_settings(run: TrainedRun) -> dict[str, Any]:
    evaluation = Evaluation.read(run.evaluation)
    return {**evaluation.config.model_dump(mode="json", exclude=_NOT_PART_OF_TASK), "split": evaluation.split}
