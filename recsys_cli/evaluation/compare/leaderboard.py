"""The leaderboard of a benchmark: models by one metric, averaged over seeds, with tests against the best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from recsys_cli.evaluation.compare.comparison import Difference, difference_of, joined, measured_metrics, rankings_of
from recsys_cli.evaluation.compare.outcomes import Outcomes, holm
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Estimate, Evaluation, Selection, legend, marked
from recsys_cli.frozen import Frozen
from recsys_cli.metrics.foreign import SAMPLED, metric_of
from recsys_cli.metrics.lists import COVERAGE
from recsys_cli.metrics.metric import Better, RankingMetric
from recsys_cli.metrics.named import better_of, figure, sort_key, title_of
from recsys_cli.workspace import TrainedRun

if TYPE_CHECKING:
    from recsys_cli.config.protocol import ProtocolConfig


class SeededScore(Estimate):
    """One metric of a model: the mean over its seeds, with the interval over users and seeds."""

    deviation: float | None = None
    """Standard deviation over the seeds; None for one run."""

    def in_words(self, *, seeds: int) -> tuple[str, str]:
        """Return mean and deviation for tables: a dash for missing values, no deviation with a single seed."""
        return figure(self.value), "" if self.value is None or seeds <= 1 else figure(self.deviation)


class LeaderboardRow(Frozen):
    """A model or a baseline."""

    place: int
    """Rank from 1, baselines included."""
    label: str
    is_baseline: bool
    is_partial: bool = False
    """Whether it is a baseline that leaves out items."""
    scores: dict[str, SeededScore]
    from_best: Difference | None = None
    """Difference from the best; None for the best, and without a test."""
    selected: tuple[Selection, ...] = ()
    """Choices made on the evaluated rows: the metrics are then optimistic."""
    seeds: int
    deterministic: bool = False
    """Whether results do not depend on the seed, so that one run counts for all."""
    seconds: float | None = None
    """Mean training time."""
    parameters: int | None = None
    coverage: float | None = None
    """Catalog coverage at the cut-off of the first ranking metric, mean over the seeds."""
    runs: tuple[str, ...] = ()

    @property
    def is_same_as_best(self) -> bool:
        """Whether it does not differ significantly from the best."""
        return self.from_best is not None and self.from_best.verdict == "noise"

    @property
    def called(self) -> str:
        """Name in tables."""
        if self.is_baseline:
            return f"{self.label} (baseline, partial)" if self.is_partial else f"{self.label} (baseline)"
        return marked(self.label, self.selected)

    def seeds_in_words(self, *, seeds: int) -> str:
        """Return the seeds for tables: `3`, `2 of 3`, or `any` for a deterministic model."""
        if self.is_baseline:
            return ""
        if self.deterministic:
            return "any"
        return f"{self.seeds}" if self.seeds == seeds else f"{self.seeds} of {seeds}"


class Leaderboard(Frozen):
    """The models of a benchmark, from best to worst."""

    metric: str
    better: Better | None
    metrics: tuple[str, ...]
    """All shown metrics, the metric of the order first."""
    data: str
    dataset: str
    split: str
    users: int
    rows: int
    seeds: tuple[int, ...]
    standings: tuple[LeaderboardRow, ...]
    failures: tuple[dict[str, Any], ...] = ()
    """Models and seeds without a result: `label`, `seed`, `message`, `hint`."""
    protocol: dict[str, str]
    published: PublishedComparison | None = None
    """Published figures of a protocol against ours."""

    @property
    def is_ranked(self) -> bool:
        """Whether the metric of the order is defined for a model or baseline."""
        return any(one.scores[self.metric].value is not None for one in self.standings)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the metrics and intervals."""
        selection = legend({one.label: one.selected for one in self.standings}, self.split)
        one_seed = len(self.seeds) == 1 and any(not (one.is_baseline or one.deterministic) for one in self.standings)
        seeds = "one seed: the intervals do not include the variance of training over seeds"
        return (*([selection] if selection else []), *([seeds] if one_seed else []))


@dataclass(frozen=True)
class _SeededSystem:
    """A model with all its seeds, or a baseline."""

    label: str
    outcomes: Outcomes
    estimates: Sequence[Mapping[str, Any]]
    runs: Sequence[TrainedRun] = ()
    selected: tuple[Selection, ...] = ()
    is_partial: bool = False


def standings_of(
    runs: Mapping[str, Sequence[TrainedRun]],
    metrics: Sequence[str],
    *,
    deterministic: Collection[str] = (),
    resamples: int,
    seed: int,
) -> tuple[LeaderboardRow, ...]:
    """Sort models and baselines by the first metric, and test them against the best.

    The runs of a label differ in their seeds; `deterministic` models have one run for all.

    Raises:
        DataError: A saved evaluation is unreadable.
    """
    systems = [_model(label, several, metrics) for label, several in runs.items()]
    first = next(iter(runs.values()))[0]
    systems += _baselines(Evaluation.read(first.evaluation), rankings_of(first), metrics, models=set(runs))
    metric, options = metrics[0], {"resamples": resamples, "seed": seed}
    scored = [(system, {name: _score(system, name, **options) for name in metrics}) for system in systems]
    scored.sort(key=lambda one: sort_key(one[1][metric].value, better_of(metric)))
    ordered = [system for system, _ in scored]
    differences = dict(_from_best(ordered, metric, **options))
    return tuple(
        LeaderboardRow(
            place=place,
            label=system.label,
            is_baseline=not system.runs,
            is_partial=system.is_partial,
            scores=scores,
            from_best=differences.get(system.label),
            selected=system.selected,
            seeds=len(system.runs),
            deterministic=system.label in deterministic,
            seconds=_mean([run.manifest["seconds"]["train"] for run in system.runs]),
            parameters=system.runs[0].manifest["parameters"] if system.runs else None,
            coverage=_coverage(system, metrics),
            runs=tuple(run.folder.name for run in system.runs),
        )
        for place, (system, scores) in enumerate(scored, start=1)
    )


def _model(label: str, runs: Sequence[TrainedRun], metrics: Sequence[str]) -> _SeededSystem:
    evaluations = [Evaluation.read(run.evaluation) for run in runs]
    available = set(metrics).intersection(*(measured_metrics(one) for one in evaluations))
    outcomes = Outcomes.mean([Outcomes.of(rankings_of(run), metrics=available) for run in runs])
    selected = tuple(dict.fromkeys(choice for one in evaluations for choice in one.selected))
    return _SeededSystem(label, outcomes, [one.metrics for one in evaluations], runs, selected)


def _baselines(
    evaluation: Evaluation, rankings: Rankings, metrics: Sequence[str], *, models: set[str]
) -> Iterator[_SeededSystem]:
    """Yield the baselines that are not also models of the benchmark."""
    for name, estimates in evaluation.systems.items():
        is_measured = any(metric in estimates and estimates[metric].value is not None for metric in metrics)
        if is_measured and name != MODEL and name not in models:
            outcomes = Outcomes.of(rankings, system=name, metrics=set(metrics))
            yield _SeededSystem(name, outcomes, [estimates], is_partial=name in evaluation.partial)


def _score(system: _SeededSystem, metric: str, *, resamples: int, seed: int) -> SeededScore:
    per_seed = [estimates[metric] for estimates in system.estimates if metric in estimates]
    values = [estimate.value for estimate in per_seed if estimate.value is not None]
    if not values or len(values) < len(system.estimates):
        return SeededScore(value=None)
    if len(values) == 1:  # the interval of its evaluation
        return SeededScore(value=values[0], low=per_seed[0].low, high=per_seed[0].high)
    is_tested = metric in system.outcomes.metrics
    low, high = system.outcomes.interval(metric, resamples=resamples, seed=seed) if is_tested else (None, None)
    return SeededScore(value=statistics.fmean(values), deviation=statistics.stdev(values), low=low, high=high)


def _from_best(
    ordered: Sequence[_SeededSystem], metric: str, *, resamples: int, seed: int
) -> Iterator[tuple[str, Difference]]:
    """Test each system against the best: seeds are averaged, and their spread adds to the error."""
    best, *others = ordered
    if metric not in best.outcomes.metrics:
        return
    others = [other for other in others if metric in other.outcomes.metrics]
    tested = [other.outcomes.minus(best.outcomes, [metric], resamples=resamples, seed=seed)[metric] for other in others]
    # The best is chosen by the same data, so any pair could have been tested.
    corrected = holm([one.p for one in tested], hypotheses=math.comb(len(tested) + 1, 2))
    for other, one, p_holm in zip(others, tested, corrected, strict=True):
        yield other.label, difference_of(one, p_holm, better_of(metric))


def _coverage(system: _SeededSystem, metrics: Sequence[str]) -> float | None:
    """Return the catalog coverage at the cut-off of the first ranking metric; None if undefined for a seed."""
    accuracy = next((name for name in metrics if isinstance(metric_of(name), RankingMetric)), None)
    if accuracy is None:
        return None
    label = SAMPLED if accuracy.startswith(SAMPLED) else ""
    name = f"{label}{COVERAGE.name}@{accuracy.rpartition('@')[2]}"
    values = [estimates[name].value for estimates in system.estimates if name in estimates]
    return None if not values or None in values else statistics.fmean(values)


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 3) if values else None


def in_words(board: Leaderboard) -> str:
    """Return the verdict: the best system, and those without a significant difference."""
    best, *others = board.standings
    title = title_of(board.metric)
    if not board.is_ranked:
        defined = [name for name in board.metrics if any(one.scores[name].value is not None for one in board.standings)]
        instead = f"; sort by another metric, such as --metric {defined[0].removeprefix(SAMPLED)}" if defined else ""
        return f"{title} is undefined for all models on these rows, so there is no order{instead}."
    tested = [one for one in others if one.from_best is not None]
    same = [one.label for one in tested if one.is_same_as_best]
    if not tested:
        return f"{best.label} ranks first by {title}; this metric has no paired test."
    if not same:
        others_in_words = "all others" if len(tested) == len(others) else "all others with a test"
        return f"{best.label} is significantly better by {title} than {others_in_words}."
    return f"{best.label} ranks first by {title}, without a significant difference from {joined(same)}."


RETRY_NOTE = "Repeat the same bench to retry failures from their last checkpoint; finished runs are not repeated."
"""Note on failures: causes such as a full disk or a busy GPU pass, so failures are not permanent."""


def failures_in_words(board: Leaderboard) -> list[tuple[str, str, str | None]]:
    """Return failures as (model with seeds, message, hint), merged over seeds."""
    seeds_by_failure: dict[tuple[str, str, str | None], list[int]] = {}
    for failure in board.failures:
        seeds_by_failure.setdefault((failure["label"], failure["message"], failure["hint"]), []).append(failure["seed"])
    return [
        (f"{label}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}", message, hint)
        for (label, message, hint), seeds in seeds_by_failure.items()
    ]


BASELINES = ("ease", "popularity")
"""Baselines next to the published figures."""

LEVEL_NOTE = (
    "Published figures have no interval: ours is level if the figure lies in our 95 % interval over users and seeds, "
    "and above or below otherwise. A published model without a counterpart is compared with the best of ours on the test rows."
)


Level = Literal["above", "level", "below"]


class Variant(Frozen):
    """The models of a published evaluation on other splits of its data."""

    name: Literal["ties", "time"]
    text: str
    """What it is, with its seeds."""
    users: int
    scores: dict[str, dict[str, SeededScore]]
    """By label and metric."""


class PublishedModel(Frozen):
    """A published model and the model of ours to compare."""

    model: str
    source: str
    ours: str
    figures: dict[str, float]
    verdicts: dict[str, Level]
    """Verdict on ours by metric; none of a metric without an interval, and on other data than the published."""
    shuffled: dict[str, Level] = Field(default_factory=dict)
    """Verdict on ours with ties shuffled."""

    def in_words(self, metric: str) -> str:
        """Return the verdict on ours by a metric, with ties shuffled as well."""
        text, shuffled = f"{self.verdicts[metric]} by {title_of(metric)}", self.shuffled.get(metric)
        if shuffled in {None, self.verdicts[metric]}:
            return f"{text}, with ties shuffled as well" if shuffled else text
        return f"{text} in file order only, {shuffled} with ties shuffled"


class PublishedComparison(Frozen):
    """The published models of a protocol against a leaderboard."""

    paper: str
    notes: tuple[str, ...]
    differences: tuple[str, ...]
    """Differences of the data from the published data."""
    verified: Literal["digest", "rows"] | None
    """What equals the published data: the files by digest, or the splits by number of rows. None: neither is published."""
    models: tuple[PublishedModel, ...]
    variants: tuple[Variant, ...] = ()

    @property
    def data_in_words(self) -> str:
        """State of the data in one sentence."""
        if self.differences:
            return f"Not the published data, so nothing here compares with it: {'; '.join(self.differences)}."
        if self.verified == "digest":
            return "The files equal the published files by digest."
        if self.verified == "rows":
            return "The numbers of rows equal the published ones; without a published digest the rows are not verified."
        return "The publishers give no digest and no number of rows, so the data is not verified."

    @property
    def sources(self) -> list[str]:
        """Sources of the figures, one line for each."""
        models: dict[str, list[str]] = {}
        for one in self.models:
            models.setdefault(one.source, []).append(one.model)
        return [f"{'; '.join(names)}: {source}" for source, names in models.items()]


def one_table(
    standings: Sequence[LeaderboardRow], published: PublishedComparison, metrics: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of a table with published models and ours, best first by the first metric."""
    rows: list[tuple[Mapping[str, float | None], list[str], str]] = []
    for one in published.models:
        verdict = "; ".join(map(one.in_words, one.verdicts))
        rows.append((one.figures, [one.model, "published"], f"{one.ours} {verdict}" if verdict else "–"))
    for row in standings:
        if not row.is_baseline or row.label in BASELINES:
            kind = "ours" if not row.is_baseline else "partial baseline" if row.is_partial else "baseline"
            rows.append(({name: score.value for name, score in row.scores.items()}, [row.label, kind], ""))
    rows.sort(key=lambda row: sort_key(row[0].get(metrics[0]), better_of(metrics[0])))
    cells = [[*names, *map(figure, map(of.get, metrics)), verdict] for of, names, verdict in rows]
    return ["model", "", *map(title_of, metrics), "verdict on ours"], cells


def variant_table(board: Leaderboard) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of a table of our models as published, with ties shuffled, and by time."""
    variants = board.published.variants if board.published else ()
    cells = []
    for row in board.standings:
        if variants and (not row.is_baseline or row.label in BASELINES):
            of = {"published": row.scores} | {one.name: one.scores.get(row.label, {}) for one in variants}
            cells += [[row.label if name == "published" else "", name, *(with_interval(scores.get(m)) for m in board.metrics)]
                      for name, scores in of.items()]  # fmt: skip
    return ["model", "", *map(title_of, board.metrics)], cells


def with_interval(score: SeededScore | None) -> str:
    """Return a score and its interval, if any, for tables."""
    ends = score.interval if score else None
    return f"{figure(score.value if score else None)}{f' [{ends[0]:.4f}, {ends[1]:.4f}]' if ends else ''}"


def compare_published(
    protocol: ProtocolConfig,
    standings: Sequence[LeaderboardRow],
    *,
    names: Mapping[str, str],
    label: str,
    rows: Mapping[str, int],
    digests: Mapping[str, bool | None],
    variants: tuple[Variant, ...] = (),
) -> PublishedComparison:
    """Compare the published figures of a protocol with the results of a bench, whose ranking metrics have the prefix `label`.

    `digests` tells whether each raw file has its published digest; None where none is published. `variants` are our models on
    other splits.
    """
    differences = [
        *(
            f"{split} has {rows[split]:,} rows, published are {number:,}"
            for split, number in protocol.rows.items()
            if rows[split] != number
        ),
        *(f"{file} has another digest than published" for file, equal in digests.items() if equal is False),
    ]
    models = []
    for one in protocol.published:
        ours = _find(one.ours, standings, names)
        figures = {f"{label}{metric}": value for metric, value in one.figures.items()}
        called = ours.label if ours is not None else one.ours or "ours"
        verdicts = _verdicts(figures, {} if ours is None or differences else ours.scores)
        shuffled = {} if differences else next((each.scores for each in variants if each.name == "ties"), {})
        levels = {"verdicts": verdicts, "shuffled": _verdicts(figures, shuffled.get(called, {}))}
        models.append(PublishedModel(model=one.model, source=one.source, ours=called, figures=figures, **levels))
    return PublishedComparison(
        paper=protocol.paper,
        notes=protocol.notes,
        differences=tuple(differences),
        verified="digest" if any(digests.values()) else "rows" if protocol.rows else None,
        models=tuple(models),
        variants=variants,
    )


def _find(name: str | None, standings: Sequence[LeaderboardRow], names: Mapping[str, str]) -> LeaderboardRow | None:
    """Return the best row of a model, or else the row with a label; without a name the best of our models."""
    whole = [row for row in standings if not row.is_partial]
    of_model = (row for row in whole if not row.is_baseline and name in {None, names.get(row.label)})
    labeled = (row for row in whole if row.label == name)
    return next(of_model, None) or next(labeled, None)


def _verdicts(published: Mapping[str, float], ours: Mapping[str, SeededScore]) -> dict[str, Level]:
    intervals = {metric: ours[metric].interval for metric in published if metric in ours}
    return {
        metric: "below" if found[1] < published[metric] else "above" if found[0] > published[metric] else "level"
        for metric, found in intervals.items()
        if found is not None
    }
