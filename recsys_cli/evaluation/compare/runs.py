"""Which runs may be compared: those that were asked the same, whatever their data is called."""

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
from recsys_cli.metrics.label_task import COMPARED
from recsys_cli.metrics.named import title_of
from recsys_cli.workspace import TrainedRun, not_finished

_CHANGES_NO_PROBLEM = {"bootstrap", "batch_size", "title", "metrics"}


def rankings_of(run: TrainedRun) -> Rankings:
    """Read what a run's evaluation has kept.

    Raises:
        MissingArtifactError: The run is not finished or not evaluated.
        DataError: The file is broken, or of another version.
    """
    name = run.folder.name
    if not run.exists:
        raise not_finished(run)
    if not run.evaluation.is_file():
        raise MissingArtifactError(f"run {name} is not evaluated", hint=f"recsys evaluate {name}")
    try:
        run.verify_evaluation()
        return Rankings.read(run.rankings)
    except RecsysError as error:
        kind = MissingArtifactError if isinstance(error, MissingArtifactError) else DataError
        raise kind(error.message, hint=f"recsys evaluate {name} --force") from error


def compare_runs(runs: Sequence[TrainedRun]) -> Comparison:
    """Test each run against the first.

    Raises:
        ConfigError: Fewer than two runs, one of them twice, or they were asked different things.
        MissingArtifactError: One is not evaluated.
        DataError: What an evaluation kept cannot be read.
    """
    names = [run.folder.name for run in runs]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        hint = "recsys compare RUN RUN; recsys status shows the runs"
        raise ConfigError(
            f"there is nothing to compare in {', '.join(names)}: runs have to be two, and not the same", hint=hint
        )
    found = [rankings_of(run) for run in runs]
    evaluations = [Evaluation.read(run.evaluation) for run in runs]
    compared = _labelled(runs, evaluations)
    for run, rankings in zip(runs[1:], found[1:], strict=True):
        check_problem((runs[0], found[0]), (run, rankings))
    systems = {
        one.label: Outcomes.of(rankings, metrics=measured(evaluation))
        for one, rankings, evaluation in zip(compared, found, evaluations, strict=True)
    }
    systems, notes = in_common(systems, found)
    if chosen := legend({one.label: one.selected for one in compared}, found[0].split):
        notes = (*notes, f"{chosen}.")
    metrics = list(next(iter(systems.values())).metrics)
    if not metrics:
        raise ConfigError(f"{' and '.join(names)} have no figure in common", hint=" ".join(notes) or None)
    options = evaluations[0].config
    figures = figures_of(systems, metrics, resamples=options.bootstrap, seed=options.seed)
    against, *others = systems
    users = len(found[0].users) if any(figure.unit == "users" for figure in figures) else 0
    rows = len(found[0].labels) if any(figure.unit == "rows" for figure in figures) else 0
    return Comparison(
        against=against,
        runs=compared,
        split=found[0].split,
        users=users,
        rows=rows,
        figures=figures,
        tests=len(figures) * len(others),
        sentences=tuple(verdicts(against, others, figures, users=users, rows=rows)),
        protocol=found[0].protocol,
        notes=notes,
    )


def check_problem(first: tuple[TrainedRun, Rankings], other: tuple[TrainedRun, Rankings]) -> None:
    """Make sure that two runs were asked the same.

    Raises:
        ConfigError: They were not; the hint says how to ask the second as the first was.
    """
    (one_run, one), (two_run, two) = first, other
    if one.split == two.split and (one.problem == two.problem or not (len(one.users) and len(two.users))):
        return
    names = f"{one_run.folder.name} and {two_run.folder.name}"
    then, now = (_asked(run) for run in (one_run, two_run))
    changed = [key for key in then if then[key] != now.get(key)]
    if changed:
        what = "; ".join(
            f"evaluate.{key} is {yaml12.quoted(then[key])} and {yaml12.quoted(now.get(key))}" for key in changed
        )
        asked = [f"evaluate.{key}={yaml12.quoted(then[key])}" for key in changed]
        hint = shlex.join(["recsys", "evaluate", two_run.folder.name, *asked])
        raise ConfigError(f"{names} were not asked the same: {what}", hint=hint)
    raise ConfigError(
        f"{names} were not asked the same: their data ({_data(one_run)} and {_data(two_run)}) holds out other rows, or has other "
        "users or items in train",
        hint="train both on the same prepared data, or at least on the same split",
    )


def measured(evaluation: Evaluation) -> set[str]:
    """Return the figures that an evaluation has of the model: scores that are no logits have no log loss."""
    figures = {**evaluation.pointwise.get(MODEL, {}), **evaluation.ranking.get(MODEL, {})}
    return {name for name, estimate in figures.items() if estimate.value is not None}


def in_common(
    systems: Mapping[str, Outcomes], found: Sequence[Rankings]
) -> tuple[dict[str, Outcomes], tuple[str, ...]]:
    """Leave out what not all systems have, and say so; rows where they are in another order are nobody's.

    Args:
        systems: By label.
        found: What their evaluations have kept.
    """
    notes: list[str] = []
    kept = dict(systems)
    if len({rankings.rows for rankings in found}) > 1:
        notes.append(
            "Rows are not compared: the data was prepared differently, and row i is not the same row in all of it."
        )
        kept = {label: replace(one, rows={}) for label, one in kept.items()}
    without = [label for label, one in kept.items() if not one.users]
    if 0 < len(without) < len(kept):
        notes.append(f"Rankings are not compared: {joined(without)} ranked for nobody.")
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


def _asked(run: TrainedRun) -> dict[str, Any]:
    evaluation = Evaluation.read(run.evaluation)
    return {**evaluation.config.model_dump(mode="json", exclude=_CHANGES_NO_PROBLEM), "split": evaluation.split}
