"""Comparisons of runs with the same evaluation task: frozen types, verdicts in sentences, and the runs' own results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from recsys_cli.config import yaml12
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, RecsysError
from recsys_cli.evaluation.compare.outcomes import Outcomes, PairedTest, Unit, holm
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, ByName, Evaluation, Selection, legend, marked
from recsys_cli.frozen import Frozen
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import COMPARED, better_of, heading_of, title_of
from recsys_cli.tabular import Tabular, rows_to_arrow
from recsys_cli.workspace import TrainedRun, finished

if TYPE_CHECKING:
    import pyarrow as pa


LEVEL = 0.05
"""Significance level after Holm's correction."""

Verdict = Literal["better", "worse", "noise"]

NAMES: Mapping[Verdict, str] = {
    "better": "significantly better",
    "worse": "significantly worse",
    "noise": "not significant",
}


class Difference(PairedTest):
    """Difference of a run from the reference in one metric: the run's value minus the reference's."""

    p_holm: float
    verdict: Verdict
    """Verdict on the run: `noise` if p_holm is at least 0.05 or the interval contains zero."""

    @property
    def in_words(self) -> str:
        """The verdict for tables, with the reason if the interval, of this metric alone, excludes zero all the same."""
        is_overruled = self.verdict == "noise" and not self.low <= 0 <= self.high
        return NAMES[self.verdict] + (f": p (Holm) ≥ {LEVEL}" if is_overruled else "")


class Figure(Frozen):
    """One metric of all runs."""

    metric: str
    title: str
    unit: Unit
    """Unit of the mean."""
    better: Better | None
    values: dict[str, float]
    differences: dict[str, Difference]
    """Difference from the reference, by run; without the reference."""


class ComparedRun(Frozen):
    """One of the compared runs."""

    label: str
    """Label: the model, and the end of the run's name if models repeat."""
    run: str
    model: str
    data: str
    dataset: str
    selected: tuple[Selection, ...] = ()
    """Choices made on the evaluated rows: the run's metrics are then optimistic."""


class Comparison(Tabular, Frozen):
    """Two or more runs on the same evaluation task; `against` is the label of the reference."""

    against: str
    runs: tuple[ComparedRun, ...]
    """All runs, the reference first."""
    split: str
    users: int
    rows: int
    figures: tuple[Figure, ...]
    """Metrics, of rankings first, then pointwise."""
    tests: int
    """Number of tests in Holm's correction."""
    sentences: tuple[str, ...]
    protocol: dict[str, str]
    notes: tuple[str, ...] = ()

    def _to_arrow(self) -> pa.Table:
        """Return all metrics as an Arrow table.

        Columns: run, metric, value, and of the difference from the reference: difference, low, high, p_holm, verdict.
        """
        names = ("run", "metric", "value", "difference", "low", "high", "p_holm", "verdict")
        rows = (
            (run, figure.metric, value, *_columns(figure.differences.get(run)))
            for figure in self.figures
            for run, value in figure.values.items()
        )
        return rows_to_arrow(names, rows)

    @property
    def others(self) -> tuple[str, ...]:
        """Labels of all runs but the reference."""
        return tuple(run.label for run in self.runs[1:])

    def called(self, label: str) -> str:
        """Return a run's label for tables, marked if its metrics are optimistic."""
        runs = ByName({run.label: run for run in self.runs})
        return marked(label, runs[str(label)].selected)


def table_of(comparison: Comparison, label: str) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table of one run against the reference: a row for each metric."""
    against, called = comparison.against, comparison.called
    return ["", called(against), called(label), "difference", "95 % interval", "p (Holm)", ""], [
        [
            heading_of(figure.metric),
            f"{figure.values[against]:.4f}",
            f"{figure.values[label]:.4f}",
            f"{one.value:+.4f}",
            f"[{one.low:+.4f}, {one.high:+.4f}]",
            probability(one.p_holm),
            one.in_words,
        ]
        for figure in comparison.figures
        for one in [figure.differences[label]]
    ]


def probability(p: float) -> str:
    """Format a p-value as in papers, with the bound `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def figures_of(
    systems: Mapping[str, Outcomes], metrics: Sequence[str], *, resamples: int, seed: int
) -> tuple[Figure, ...]:
    """Test all systems against the first, by all metrics on the same users and rows; the tests form one family."""
    (_, first), *others = systems.items()
    tested = {label: other.minus(first, metrics, resamples=resamples, seed=seed) for label, other in others}
    pairs = [(label, metric) for metric in metrics for label in tested]
    corrected = dict(zip(pairs, holm([tested[label][metric].p for label, metric in pairs]), strict=True))
    return tuple(
        Figure(
            metric=metric,
            title=title_of(metric),
            unit=first.metrics[metric],
            better=better_of(metric),
            values={label: outcomes.value(metric) for label, outcomes in systems.items()},
            differences={
                label: difference_of(tests[metric], corrected[label, metric], better_of(metric))
                for label, tests in tested.items()
            },
        )
        for metric in metrics
    )


def difference_of(tested: PairedTest, p_holm: float, better: Better | None) -> Difference:
    """Return a difference with its verdict: significant only if corrected test and interval agree."""
    verdict: Verdict = "better" if (tested.value > 0) == (better != "lower") else "worse"
    if p_holm >= LEVEL or tested.low <= 0 <= tested.high:
        verdict = "noise"
    return Difference(**tested.model_dump(), p_holm=p_holm, verdict=verdict)


def _columns(one: Difference | None) -> tuple[float | str | None, ...]:
    return (None,) * 5 if one is None else (one.value, one.low, one.high, one.p_holm, one.verdict)


METHOD = (
    "Rows of one user are not independent, so users are the sampling unit. Ranking metrics: intervals of the paired bootstrap "
    "over users, p-values of the t test of the users' differences. AUC: DeLong's test with placements summed by user. Log loss, "
    "errors and metrics per impression: paired t-test of sums by user. p-values are Holm-corrected for all tests of the table, all "
    "metrics and runs. recsys evaluate tests fewer: one metric, fixed beforehand, against its baselines. A difference significant "
    "there may not be here. A difference is significant if its corrected p-value is below 0.05 and its 95 % confidence interval "
    "excludes zero."
)


def verdicts(against: str, others: Sequence[str], figures: Sequence[Figure], **units: int) -> Iterator[str]:
    """Yield the verdict on each run other than the reference; `units` are the numbers of users, rows and impressions."""
    sample = " and ".join(
        f"{number:,} {unit}" for unit, number in units.items() if any(figure.unit == unit for figure in figures)
    )
    sample = "; ".join(filter(None, [sample, correction(len(others) * len(figures))]))
    for label in others:
        yield " ".join(_about(label, against, figures, sample))


def correction(tests: int) -> str:
    """Return Holm's correction in words; empty for one test."""
    return f"corrected for {tests:,} comparisons" if tests > 1 else ""


def joined(names: Sequence[str]) -> str:
    """Join names as in a sentence: a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _about(label: str, against: str, figures: Sequence[Figure], sample: str) -> Iterator[str]:
    by: dict[Verdict, list[str]] = {"better": [], "worse": [], "noise": []}
    for figure in figures:
        by[figure.differences[label].verdict].append(figure.title)
    if not by["better"] and not by["worse"]:
        metrics = f"by {figures[0].title}" if len(figures) == 1 else f"by any of {len(figures)} metrics"
        yield f"{label} and {against} do not differ significantly {metrics} ({sample})."
        return
    parts = [f"significantly {verdict} by {joined(by[verdict])}" for verdict in ("better", "worse") if by[verdict]]
    yield f"Compared with {against}, {label} is {', but '.join(parts)}."
    if by["noise"]:
        yield f"No significant difference by {joined(by['noise'])} ({sample})."


_NOT_PART_OF_TASK = {"bootstrap", "batch_size", "title", "metrics"}


def rankings_of(run: TrainedRun) -> Rankings:
    """Read the rankings of a run's evaluation.

    Raises:
        MissingArtifactError: The run is not finished or not evaluated.
        DataError: The file is damaged, or of another version.
    """
    name = run.folder.name
    if not finished(run).evaluation.is_file():
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
        raise ConfigError(f"compare needs at least two different runs, but has {', '.join(names) or 'none'}", hint=hint)
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
    if cold := evaluations[0].counts.only_cold_in_words:
        notes = (*notes, f"{cold}: models without content features cannot find these.")
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
