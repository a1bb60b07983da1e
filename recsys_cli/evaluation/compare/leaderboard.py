"""Models from best to worst by one figure, over their seeds, and which of them cannot be told apart from the best."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_cli.evaluation.compare.comparison import Difference, verdict_of
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.compare.paired import holm
from recsys_cli.evaluation.compare.runs import measured, rankings_of
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Estimate, Evaluation, Frozen
from recsys_cli.evaluation.selection import Selection, legend, marked
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import better_of, sort_key, title_of
from recsys_cli.workspace import TrainedRun


class SeededScore(Frozen):
    """One figure of a model, over its seeds."""

    value: float | None
    """The mean over the seeds; None where it is not defined."""
    deviation: float | None = None
    """Standard deviation over the seeds; None for one run."""
    low: float | None = None
    """Lower end of the 95 % interval: over users and seeds; else that of the first seed."""
    high: float | None = None
    """Upper end of the interval."""

    def in_words(self, *, seeds: int) -> tuple[str, str]:
        """Return the mean and the deviation as tables have them: a dash for what there is not, nothing with one seed for all."""
        if self.value is None:
            return "–", ""
        deviation = "–" if self.deviation is None else f"{self.deviation:.4f}"
        return f"{self.value:.4f}", deviation if seeds > 1 else ""


class LeaderboardRow(Frozen):
    """One line of the leaderboard."""

    place: int
    """From 1, the best; baselines have places, too."""
    label: str
    """Name of the model, or of the baseline."""
    is_baseline: bool
    """Whether it is one of those that every evaluation has beside it."""
    scores: dict[str, SeededScore]
    """By figure, such as `ndcg@10`."""
    from_best: Difference | None = None
    """Its difference from the best; None for the best, and where the figure cannot be tested."""
    selected: tuple[Selection, ...] = ()
    """What the measured rows chose of its runs: then its figures are too good."""
    seeds: int
    """How many runs it is the mean of."""
    deterministic: bool = False
    """Whether every seed comes to the same, so that one run counts for all."""
    seconds: float | None = None
    """How long its training took, on the mean."""
    parameters: int | None = None
    """How many numbers were learnt."""
    runs: tuple[str, ...] = ()
    """Names of the runs' folders."""

    @property
    def is_same_as_best(self) -> bool:
        """Whether it cannot be told apart from the best."""
        return self.from_best is not None and self.from_best.verdict == "noise"

    @property
    def called(self) -> str:
        """What tables call it."""
        return f"{self.label} (baseline)" if self.is_baseline else marked(self.label, self.selected)

    def seeds_in_words(self, *, seeds: int) -> str:
        """Return which seeds its figures are of, if there should be so many: `3`, `2 of 3`, or `any` where it is deterministic."""
        if self.is_baseline:
            return ""
        if self.deterministic:
            return "any"
        return f"{self.seeds}" if self.seeds == seeds else f"{self.seeds} of {seeds}"


class Leaderboard(Frozen):
    """The models of a bench."""

    metric: str
    """The figure that they are sorted by."""
    better: Better | None
    """Which values of it are better."""
    metrics: tuple[str, ...]
    """The figures that are shown, that one first."""
    data: str
    """Name of the prepared data."""
    dataset: str
    """What that data is called."""
    split: str
    """`valid` or `test`."""
    users: int
    """Users that were ranked for."""
    rows: int
    """Rows that were predicted."""
    seeds: tuple[int, ...]
    """What the models were trained with."""
    standings: tuple[LeaderboardRow, ...]
    """From best to worst."""
    failures: tuple[dict[str, Any], ...] = ()
    """Models and seeds that could not be trained or measured: `label`, `seed`, `message`, `hint`."""
    protocol: dict[str, str]
    """How it was measured, in words."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the intervals has to know."""
        found = legend({one.label: one.selected for one in self.standings}, self.split)
        one_seed = len(self.seeds) == 1 and any(not (one.is_baseline or one.deterministic) for one in self.standings)
        seeds = "one seed: how far training varies from seed to seed is not in the intervals"
        return (*([found] if found else []), *([seeds] if one_seed else []))


@dataclass(frozen=True)
class _SeededSystem:
    """A model with all its seeds, or a baseline."""

    label: str
    outcomes: Outcomes
    estimates: Sequence[Mapping[str, Any]]
    runs: Sequence[TrainedRun] = ()
    selected: tuple[Selection, ...] = ()


def standings_of(
    runs: Mapping[str, Sequence[TrainedRun]],
    metrics: Sequence[str],
    *,
    deterministic: Collection[str] = (),
    resamples: int,
    seed: int,
) -> tuple[LeaderboardRow, ...]:
    """Put models in order.

    Args:
        runs: The evaluated runs of each model, one for each seed, by label; all on the same problem.
        metrics: Figures to show; models are sorted by the first.
        deterministic: Labels of models whose one run counts for all seeds.
        resamples: For the bootstrap over users.
        seed: Decides its draws.

    Raises:
        DataError: What an evaluation kept cannot be read.
    """
    systems = [_model(label, several, metrics) for label, several in runs.items()]
    first = next(iter(runs.values()))[0]
    systems += _baselines(Evaluation.read(first.evaluation), rankings_of(first), metrics, known=set(runs))
    metric, options = metrics[0], {"resamples": resamples, "seed": seed}
    scored = [(system, {name: _score(system, name, **options) for name in metrics}) for system in systems]
    scored.sort(key=lambda one: sort_key(one[1][metric].value, better_of(metric)))
    ordered = [system for system, _ in scored]
    apart = dict(_from_best(ordered, metric, **options))
    return tuple(
        LeaderboardRow(
            place=place,
            label=system.label,
            is_baseline=not system.runs,
            scores=scores,
            from_best=apart.get(system.label),
            selected=system.selected,
            seeds=len(system.runs),
            deterministic=system.label in deterministic,
            seconds=_mean([run.manifest["seconds"]["train"] for run in system.runs]),
            parameters=system.runs[0].manifest["parameters"] if system.runs else None,
            runs=tuple(run.folder.name for run in system.runs),
        )
        for place, (system, scores) in enumerate(scored, start=1)
    )


def _model(label: str, runs: Sequence[TrainedRun], metrics: Sequence[str]) -> _SeededSystem:
    evaluations = [Evaluation.read(run.evaluation) for run in runs]
    wanted = set(metrics).intersection(*(measured(one) for one in evaluations))
    outcomes = Outcomes.mean([Outcomes.of(rankings_of(run), metrics=wanted) for run in runs])
    estimates = [_estimates(one, MODEL) for one in evaluations]
    selected = tuple(dict.fromkeys(what for one in evaluations for what in one.selected))
    return _SeededSystem(label, outcomes, estimates, runs, selected)


def _baselines(
    found: Evaluation, rankings: Rankings, metrics: Sequence[str], *, known: set[str]
) -> Iterator[_SeededSystem]:
    """Yield what every evaluation has beside its model; one that is a model of the bench, too, is there already."""
    for name in dict.fromkeys([*found.ranking, *found.pointwise]):
        if name != MODEL and name not in known:
            estimates = _estimates(found, name)
            if any(metric in estimates and estimates[metric].value is not None for metric in metrics):
                yield _SeededSystem(name, Outcomes.of(rankings, system=name, metrics=set(metrics)), [estimates])


def _estimates(found: Evaluation, system: str) -> dict[str, Estimate]:
    return {
        name: one
        for part in (found.pointwise, found.ranking, found.beyond)
        for name, one in part.get(system, {}).items()
    }


def _score(system: _SeededSystem, metric: str, *, resamples: int, seed: int) -> SeededScore:
    found = [estimates[metric] for estimates in system.estimates if metric in estimates]
    values = [estimate.value for estimate in found if estimate.value is not None]
    if not values or len(values) < len(system.estimates):
        return SeededScore(value=None)
    low, high = found[0].low, found[0].high
    if metric in system.outcomes.metrics:
        low, high = system.outcomes.interval(metric, resamples=resamples, seed=seed)
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return SeededScore(value=statistics.fmean(values), deviation=deviation, low=low, high=high)


def _from_best(
    ordered: Sequence[_SeededSystem], metric: str, *, resamples: int, seed: int
) -> Iterator[tuple[str, Difference]]:
    """Test who is worse than the best: the seeds of a model are one mean, and their spread is part of the error."""
    best, *others = ordered
    if metric not in best.outcomes.metrics:
        return
    others = [other for other in others if metric in other.outcomes.metrics]
    tested = [other.outcomes.minus(best.outcomes, [metric], resamples=resamples, seed=seed)[metric] for other in others]
    corrected = holm([one.p for one in tested])
    for other, one, p_holm in zip(others, tested, corrected, strict=True):
        verdict = verdict_of(one, p_holm, better_of(metric))
        yield (
            other.label,
            Difference(value=one.value, low=one.low, high=one.high, p=one.p, p_holm=p_holm, verdict=verdict),
        )


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 3) if values else None


def in_words(found: Leaderboard) -> str:
    """Say who is best, and who may be as good."""
    best, *others = found.standings
    title = title_of(found.metric)
    tested = [one for one in others if one.from_best is not None]
    same = [one.label for one in tested if one.is_same_as_best]
    if not tested:
        return f"{best.label} is first by {title}; how sure that is cannot be tested user by user."
    if not same:
        others_in_words = "all others" if len(tested) == len(others) else "all others that can be tested"
        return f"{best.label} is better by {title} than {others_in_words}, beyond what chance gives."
    return f"{best.label} is first by {title}; {', '.join(same)} cannot be told apart from it."


AGAIN = "The same bench tries again what failed, and a run goes on from its last checkpoint; what succeeded is not made again."
"""What to know of failures: chance, a full disk or a GPU that was busy may be why, so none is kept for good."""


def failures_in_words(found: Leaderboard) -> list[tuple[str, str, str | None]]:
    """Return what could not be made: the model with its seeds, why, and what to do; seeds that failed alike are one."""
    alike: dict[tuple[str, str, str | None], list[int]] = {}
    for failure in found.failures:
        alike.setdefault((failure["label"], failure["message"], failure["hint"]), []).append(failure["seed"])
    return [
        (f"{label}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}", message, hint)
        for (label, message, hint), seeds in alike.items()
    ]
