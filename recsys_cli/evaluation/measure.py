"""End-to-end evaluation of a model on prepared data, with paired tests against the baselines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation import breakdown
from recsys_cli.evaluation.baselines import ranking_baselines
from recsys_cli.evaluation.breakdown import CohortParts, catalog_of, measure_cohorts, measure_lists, measure_stages
from recsys_cli.evaluation.compare.comparison import Verdict, correction, figures_of, joined
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.intervals import Clusters, Impressions, by_owner, ranking_estimates
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.pointwise import LabeledRows, MeasuredRows, measure_rows, predict
from recsys_cli.evaluation.ranking import Top, gather, users_per_block, why_not
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Estimates, Measurements, StageFigures
from recsys_cli.evaluation.systems import SLOTS, STAGE, Part, Systems
from recsys_cli.evaluation.task import (
    EvaluationTask,
    cold_items_sentence,
    cold_start_notes,
    count,
    cut_off_note,
    describe,
    left_out_note,
    repeat_note,
)
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables, Loader
from recsys_cli.metrics import RANKING, PointwiseMetric, Ranked
from recsys_cli.metrics.labels import LOG_LOSS
from recsys_cli.metrics.metric import Floats
from recsys_cli.metrics.named import COMPARED, headlines
from recsys_cli.metrics.rankings import IMPRESSION_AUC
from recsys_cli.models.model import Model, Stage
from recsys_cli.workspace import PreparedData

_FLIPPED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "noise": "noise"}
_NO_RANKING_OBJECTIVE = (
    "The model predicts labels of given rows, not which items users choose. To rank the catalog, train ease or sasrec: recsys "
    "run CONFIG model.name=ease (recsys ls models lists the purpose of each model)."
)
_NOT_ABOVE = "The model is not shown to be worth more than {}, which is simpler and slightly better here: {}."
_CURE = "recsys run CONFIG model.name=auto trains several models and keeps the best"
_CURE_OF_AUTO = "valid preferred it, so the splits differ: gather more data, try another split, or recsys run CONFIG "
_WORSE = "the rankings of this model are significantly worse than those of"


class Verdicts(NamedTuple):
    """The verdict in sentences, and a warning about rankings significantly below popularity, with the remedy."""

    sentences: tuple[str, ...]
    warning: str | None


def verdicts(
    measured: MeasuredRows,
    rows: Interactions,
    ranked: Mapping[str, Ranked],
    config: EvaluateConfig,
    *,
    predicts_labels: bool,
    is_chosen: bool = False,
    impressions: Impressions | None = None,
) -> Verdicts:
    """Return the verdict: on impressions or else on the rows, and on the rankings if any.

    The model comes first; cold-start users have distinct ids. `is_chosen`: valid chose the model among several.
    """
    own_first = "'model={name: popularity, own_first: true}'"
    cure = _CURE_OF_AUTO + (own_first if config.repeats else "model.name=popularity") if is_chosen else _CURE
    sentences, worse = _of_rankings(ranked, config, predicts_labels=predicts_labels, cure=cure)
    below = [name for name in worse if name.startswith("popularity")]
    warning = f"{_WORSE} {joined(below)}; {cure}" if below else None
    return Verdicts((*_of_rows(measured, rows, config, impressions), *sentences), warning)


def _of_rows(
    measured: MeasuredRows, rows: Interactions, config: EvaluateConfig, impressions: Impressions | None
) -> Iterator[str]:
    """Yield the test of AUC, or of RMSE for numeric labels; none if it is undefined.

    With impressions, AUC per impression: that of all rows also measures differences between users. A significantly
    worse log loss is reported too: a good order can have inaccurate probabilities.
    """
    own = measured.estimates[MODEL]
    if impressions is not None and len(impressions.rows):
        values = {name: impressions.values(rows.labels, scores) for name, scores in measured.scores.items()}
        yield _sentence(*_compared(values, IMPRESSION_AUC.name, rows, config, impressions.clusters))
    for name in headlines(own)[:1] if impressions is None else ():
        if own[name].value is not None:
            yield _sentence(*_compared(_by_row(measured, COMPARED[name], rows), name, rows, config))
    if LOG_LOSS.name in own and own[LOG_LOSS.name].value is not None:
        title, by = _compared(_by_row(measured, LOG_LOSS, rows), LOG_LOSS.name, rows, config)
        if by["worse"]:
            yield (
                f"By {title}, the model is significantly worse than {joined(by['worse'])}: its probabilities are inaccurate."
            )


def _by_row(measured: MeasuredRows, metric: PointwiseMetric, rows: Interactions) -> dict[str, dict[str, Floats]]:
    assert metric.by_row is not None
    values = metric.by_row.values
    return {name: {metric.name: values(rows.labels, scores)} for name, scores in measured.scores.items()}


def _compared(
    values: Mapping[str, dict[str, Floats]], metric: str, rows: Interactions, config: EvaluateConfig,
    impressions: Clusters | None = None,
) -> tuple[str, dict[Verdict, list[str]]]:  # fmt: skip
    """Test the model by values of rows or impressions, by system and metric."""
    labels, clusters = rows.labels != 0, Clusters.of_users(rows.user_idx)
    systems = {name: Outcomes({}, one, labels, clusters, impressions=impressions) for name, one in values.items()}
    return _tested(systems, metric, config)


def _of_rankings(
    ranked: Mapping[str, Ranked], config: EvaluateConfig, *, predicts_labels: bool, cure: str
) -> tuple[list[str], list[str]]:
    """Return the test of NDCG at the first cut-off, with an explanation for a worse model, and the better baselines.

    Without baselines of the same rankings: a model is not compared with itself.
    """
    ranked = {name: hits for name, hits in ranked.items() if name == MODEL or not _same(hits, ranked[MODEL])}
    if len(ranked) < 2 or not len(ranked[MODEL].num_relevant):
        return [], []
    k = min(config.k)
    metric = f"{config.label}ndcg@{k}"
    outcomes = {
        name: Outcomes.of_users({metric: by_owner(RANKING["ndcg"].compute(hits, k), hits.owners)})
        for name, hits in ranked.items()
    }
    title, by = _tested(outcomes, metric, config)
    sentences = [_sentence(title, by), *([_NO_RANKING_OBJECTIVE] if by["worse"] and predicts_labels else [])]
    own = outcomes[MODEL].value(metric)
    above = [name for name in by["noise"] if name.startswith("popularity") and outcomes[name].value(metric) > own]
    return [*sentences, *([_NOT_ABOVE.format(joined(above), cure)] if above else [])], by["worse"]


def _same(one: Ranked, other: Ranked) -> bool:
    return np.array_equal(one.hits, other.hits) and np.array_equal(one.candidates, other.candidates)


def _tested(
    systems: Mapping[str, Outcomes], metric: str, config: EvaluateConfig
) -> tuple[str, dict[Verdict, list[str]]]:
    """Return the title of a metric, and the baselines by the model's verdict against them."""
    (figure,) = figures_of(systems, [metric], resamples=config.bootstrap, seed=config.seed)
    by: dict[Verdict, list[str]] = {"better": [], "worse": [], "noise": []}
    for name, difference in figure.differences.items():
        by[_FLIPPED[difference.verdict]].append(name)
    return figure.title, by


def _sentence(title: str, by: Mapping[Verdict, list[str]]) -> str:
    words: dict[Verdict, str] = {
        "better": "significantly better than",
        "worse": "significantly worse than",
        "noise": "not significantly different from",
    }
    parts = [f"{text} {joined(by[verdict])}" for verdict, text in words.items() if by[verdict]]
    corrected = correction(sum(map(len, by.values())))
    return f"By {title}, the model is {joined(parts)}{f' ({corrected})' if corrected else ''}."


NO_FOLD_IN = (
    "No ranking: all users of the split are cold-start users, and this model ranks only for users of train. Models with fold-in "
    "rank for cold-start users from their history."
)


@dataclass(frozen=True)
class ComputeSettings:
    """Device, memory (of the loader, in MiB) and ranking on workers, if any, of an evaluation; they do not change the results."""

    device: torch.device | str = "cpu"
    memory: int = 4_096
    emit: Emit = ignore
    rank: Callable[[Systems, Iterable[Part]], Iterator[Top]] | None = None


def measure(
    model: Model, data: PreparedData, config: EvaluateConfig, *,
    compute: ComputeSettings | None = None, is_chosen: bool = False, baselines: bool = True, cold_slots: int = 0,
) -> tuple[Measurements, Rankings]:  # fmt: skip
    """Evaluate a model on its device, and with `baselines` those that rank, on the same rows and users.

    Return metrics with intervals, and the rankings and scores behind them. `is_chosen`: valid chose the model among several.

    Raises:
        ConfigError: The split has no rows.
        DataError: A binary label is not 0 or 1, or a numeric label is missing.
        TrainingError: The model's scores are not finite.
    """
    return _Measurement(model, data, config, compute or ComputeSettings(), is_chosen, baselines, cold_slots).run()


def choose_split(data: PreparedData, config: EvaluateConfig) -> str:
    """Return the configured split; `auto` is test if it has rows, else valid.

    Raises:
        ConfigError: The split has no rows.
    """
    split = config.split if config.split != "auto" else ("test" if data.rows("test") else "valid")
    if not data.rows(split):
        raise ConfigError(
            f"{data.folder}: the prepared data has {data.rows('train'):,} rows of train and none of {split} to evaluate on",
            hint="add interactions, set a larger share in split, or choose another evaluate.split; recsys train works without an "
            "evaluation",
        )
    return split


@dataclass
class _Measurement:
    model: Model
    data: PreparedData
    config: EvaluateConfig
    compute: ComputeSettings
    is_chosen: bool
    baselines: bool
    cold_slots: int
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)

    def run(self) -> tuple[Measurements, Rankings]:
        split = choose_split(self.data, self.config)
        with self._timed("read"):
            by_user = SplitByUser.read(self.data, split, self.config)
        with self._timed("prepare the ranking"):
            task = EvaluationTask.of(by_user, split, self.config)
        rows, config = by_user.rows, self.config
        systems = Systems(self.model, self.data, split, by_user, task.new_users, config, self.compute.device)
        moves = self.config.targets != "all" and not by_user.num_folded  # histories of rankings reach into the split
        self.model.set_context(systems.context_of(by_user.before) if moves else systems.context)
        logits = self._score_rows(by_user, split)
        impressions = task.impressions
        of_model = LabeledRows(
            by_user.cold.hidden(rows), by_user.cold.hidden(by_user.train), by_user.cold.first, impressions
        )
        with self._timed("metrics of rows"):
            of_rows = measure_rows(logits, of_model, config=self.config, probabilistic=self.model.probabilistic)
        if moves:
            self.model.set_context(systems.context)
        ranked, num_empty = self._rank(task, systems)
        stages = self._stages(ranked, task, systems)
        self.notes += self._slots(ranked, task, systems)
        with self._timed("metrics of rankings"):
            ranking = ranking_estimates(ranked, self.config.k, self.config)
            beyond = self._beyond(ranked, task)
        with self._timed("cohorts"):
            first = by_user.new.first, by_user.cold.first
            parts = CohortParts(rows, by_user.history, task.held_out, of_rows.scores, ranked, *first)
            cohorts = measure_cohorts(parts, self.config)
        with self._timed("verdict"):
            verdict = verdicts(
                of_rows, rows, ranked, self.config,
                predicts_labels=self.model.probabilistic, is_chosen=self.is_chosen, impressions=impressions,
            )  # fmt: skip
        self.notes += [impressions.note] if impressions else []
        counts = count(task, num_empty=num_empty)
        sentences = [*verdict.sentences]
        if ranked:
            cut_off = cut_off_note(config, counts.candidates)
            self.notes += filter(None, (cut_off, repeat_note(split, counts, config), left_out_note(split, counts)))
            sentences += filter(None, [cold_items_sentence(counts, by_content=self.model.ranks_cold_items)])
        measured = Measurements(
            split=task.split,
            pointwise=of_rows.estimates,
            reliability=of_rows.reliability,
            ranking=ranking,
            beyond=beyond,
            cohorts=cohorts,
            label_mean=rows.mean,
            counts=counts,
            protocol=describe(task.split, self.config, counts, mean=rows.mean),
            stages=stages,
            verdict=tuple(sentences),
            warning=verdict.warning,
            notes=tuple(self.notes),
            partial=tuple(self.partial),
            seconds=self.seconds,
        )
        return measured, task.rankings(ranked, logits, measured.protocol, self.config)

    def _score_rows(self, by_user: SplitByUser, split: str) -> npt.NDArray[np.float32]:
        num_rows, users = len(by_user.rows), None
        if self.model.timestamp is not None:
            self.model.set_earlier_rows(by_user.earlier)
            users = by_user.rows.user_idx
        loader = Loader(
            self.data, split, batch_size=self.config.batch_size, device=self.compute.device, memory=self.compute.memory,
            times=users is not None, history_users=users,
        )  # fmt: skip

        def progress(done: int) -> None:
            self.compute.emit(Progress(f"score {split}", done, num_rows))

        with self._timed("score rows"):
            return predict(self.model, loader, progress=progress)

    def _rank(self, task: EvaluationTask, systems: Systems) -> tuple[dict[str, Ranked], int]:
        ranked: dict[str, Ranked] = {}
        num_empty, names = 0, self._names(task, systems)
        found = self._ranked(names, max(self.config.k), task, systems)
        for name in names:
            with self._timed(f"rank by {name}"):
                ranked[name], num_empty = next(found)
        return ranked, num_empty

    def _names(self, task: EvaluationTask, systems: Systems) -> list[str]:
        """Return the names of the systems, fitted; empty with a note if no ranking is possible."""
        schema, device = self.data.schema, self.compute.device
        if task.by_user.num_folded and not self.model.folds_in:
            self.notes.append(NO_FOLD_IN)
            return []
        if (reason := why_not(self.model, task.held_out, systems.tables, schema, device=device)) is not None:
            self.notes.append(f"No ranking: {reason}.")
            return []
        self.notes += cold_start_notes(task, self.model)
        if self.config.repeats and self.model.ranks_seen_last:
            self.notes.append(
                "The model ranks seen items behind all others, so evaluate.repeats counts repeats as misses."
            )
        fitted = {MODEL: self.model}
        for label in ranking_baselines(schema, self.config, self.data.rows("train")) if self.baselines else {}:
            with self._timed(f"fit {label}"):
                fitted[label] = systems.system(label)
        for name, system in fitted.items():
            if system.left_out is not None:
                self.partial.append(name)
                self.notes.append(
                    system.left_out.sentence("The model" if name == MODEL else f"The baseline {name}") + "."
                )
        return list(fitted)

    def _ranked(
        self, names: Sequence[str], cut_off: int, task: EvaluationTask, systems: Systems
    ) -> Iterator[tuple[Ranked, int]]:
        """Yield the rankings of each system, from this process or from workers."""
        held_out = task.held_out
        size = users_per_block(len(held_out.candidates))
        parts = ((name, cut_off, block) for name in names for block in held_out.blocks(size))
        tops = self.compute.rank(systems, parts) if self.compute.rank else map(systems.rank, parts)

        def progress(name: str, done: int) -> None:
            self.compute.emit(
                Progress(f"rank by {name.removeprefix(STAGE)}", done, len(held_out.user_idx), unit="users")
            )

        for name in names:
            progress(name, 0)  # the first users may take minutes
            yield gather(tops, held_out, cut_off=cut_off, progress=partial(progress, name))

    def _stages(self, ranked: Mapping[str, Ranked], task: EvaluationTask, systems: Systems) -> tuple[StageFigures, ...]:
        """Measure each stage of the model by its own; none for a model of one stage or without a ranking."""
        stages = self.model.stages if ranked else {}
        if not stages:
            return ()

        def rank_by(name: str, _: Stage, cut_off: int) -> Ranked:
            return next(self._ranked([STAGE + name], cut_off, task, systems))[0]

        with self._timed("stages"):
            return tuple(measure_stages(stages, rank_by, ranked[MODEL], self.config, name="whole model"))

    def _slots(self, ranked: Mapping[str, Ranked], task: EvaluationTask, systems: Systems) -> Iterator[str]:
        is_cold = task.by_user.cold.among(task.held_out.candidates)
        if self.cold_slots and ranked and not (is_cold.any() and self.model.ranks_cold_items):
            yield "recommend.cold_slots has no effect: no item absent from train is ranked (model.cold_items)."
        elif self.cold_slots and ranked and not self.config.label:
            filled = next(self._ranked([f"{SLOTS}{self.cold_slots}"], min(self.config.k), task, systems))[0]
            found = breakdown.measure_slots((filled, ranked[MODEL]), task.held_out, is_cold, self.config)
            yield f"recommend.cold_slots={self.cold_slots} (all other figures are without): {'; '.join(found)}."

    def _beyond(self, ranked: Mapping[str, Ranked], task: EvaluationTask) -> dict[str, Estimates]:
        if not ranked:
            return {}
        candidates = task.held_out.candidates
        catalog = catalog_of(candidates, task.by_user.train.observed(), DimensionTables(self.data), self.data.schema)
        return {name: measure_lists(lists, task.held_out, catalog, self.config) for name, lists in ranked.items()}

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] = round(time.perf_counter() - started, 3)
