"""Measures a model on prepared data from end to end: rows first, then rankings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.baselines import RANKING as BASELINES
from recsys_cli.evaluation.baselines import fit_baseline
from recsys_cli.evaluation.baselines.cache import FittedCache
from recsys_cli.evaluation.beyond_accuracy import catalog_of, measure_lists
from recsys_cli.evaluation.bootstrap import ranking_estimates
from recsys_cli.evaluation.cohorts import CohortParts, measure_cohorts
from recsys_cli.evaluation.cold_start import FoldInScorer, TemporaryIds
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.pointwise import LabeledRows, measure_rows, predict
from recsys_cli.evaluation.protocol_text import count, describe, on_new_users
from recsys_cli.evaluation.ranking import Scorer, rank
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Estimates, Measurements
from recsys_cli.evaluation.scorers import ModelScorer, why_not
from recsys_cli.evaluation.task import EvaluationTask
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.evaluation.verdict import verdicts
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.features.schema import Role
from recsys_cli.loader import DimensionTables, Loader
from recsys_cli.metrics import Ranked
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.workspace import PreparedData

NO_FOLD_IN = (
    "No ranking: this model learns something of each user, and of users whom train does not have it knows nothing. Models that "
    "make what they know of a user from the user's history rank for them."
)


@dataclass(frozen=True)
class ComputeSettings:
    """Where and within which bounds to compute; changes no figure.

    Attributes:
        device: Where the model is, and where to rank.
        memory: Budget of the loader in MiB.
        emit: Takes progress.
    """

    device: torch.device | str = "cpu"
    memory: int = 4_096
    emit: Emit = ignore


def measure(
    model: Model, data: PreparedData, config: EvaluateConfig, *, place: ComputeSettings | None = None
) -> tuple[Measurements, Rankings]:
    """Measure a model and the baselines on the same rows and users; return the figures, and what they are figures of.

    Args:
        model: In evaluation mode, on the place's device.
        data: Where the rows are.
        config: What to measure.
        place: Where to compute.

    Raises:
        ConfigError: The split has no rows.
        DataError: The labels are not 0 and 1, or of numbers one is missing.
        TrainingError: The model's scores are no numbers.
    """
    return _Measurement(model, data, config, place or ComputeSettings()).run()


def choose_split(data: PreparedData, config: EvaluateConfig) -> str:
    """Return the split to evaluate: as configured, or test where there is one and valid otherwise.

    Raises:
        ConfigError: It has no rows.
    """
    split = config.split if config.split != "auto" else ("test" if data.rows("test") else "valid")
    if not data.rows(split):
        raise ConfigError(
            f"{data.folder}: the prepared data has no {split} rows to evaluate on",
            hint="choose another evaluate.split, or give the split a share in the config and run recsys etl",
        )
    return split


@dataclass
class _Measurement:
    model: Model
    data: PreparedData
    config: EvaluateConfig
    place: ComputeSettings
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> tuple[Measurements, Rankings]:
        asked, tables = self._asked(), DimensionTables(self.data, device=self.place.device)
        by_user, rows = asked.by_user, asked.by_user.rows
        earlier = ("train", "valid") if asked.split == "test" else ("train",)
        before = by_user.hidden(by_user.before)
        by_now = make_context(self.data, *earlier, tables=tables, read=before)
        self.model.set_context(by_now)
        logits = self._score_rows(asked.split, len(rows))
        of_model = LabeledRows(by_user.cold.hidden(rows), by_user.cold.hidden(by_user.train), by_user.cold.first)
        with self._timed("metrics of rows"):
            of_rows = measure_rows(logits, of_model, config=self.config, probabilistic=self.model.probabilistic)
        ranked, num_empty = self._rank(asked, tables, by_now)
        with self._timed("metrics of rankings"):
            ranking = ranking_estimates(ranked, self.config.k, self.config)
            beyond = self._beyond(ranked, asked)
        with self._timed("cohorts"):
            first = by_user.new.first, by_user.cold.first
            parts = CohortParts(rows, by_user.history, asked.held_out, of_rows.scores, ranked, *first)
            cohorts = measure_cohorts(parts, self.config)
        with self._timed("verdict"):
            of_labels = self.model.probabilistic
            sentences = verdicts(of_rows, rows, ranked, self.config, of_labels=of_labels)
        counts = count(asked, num_empty=num_empty)
        measured = Measurements(
            split=asked.split,
            pointwise=of_rows.estimates,
            reliability=of_rows.reliability,
            roc=of_rows.roc,
            precision_recall=of_rows.precision_recall,
            ranking=ranking,
            beyond=beyond,
            cohorts=cohorts,
            label_mean=rows.mean,
            counts=counts,
            protocol=describe(asked.split, self.config, counts, mean=rows.mean),
            verdict=sentences,
            notes=tuple(self.notes),
            seconds=self.seconds,
        )
        return measured, asked.rankings(ranked, logits, measured.protocol, self.config)

    def _asked(self) -> EvaluationTask:
        split = choose_split(self.data, self.config)
        with self._timed("read"):
            by_user = SplitByUser.read(self.data, split, seed=self.config.seed)
        with self._timed("prepare the ranking"):
            return EvaluationTask.of(by_user, split, self.config)

    def _score_rows(self, split: str, num_rows: int) -> npt.NDArray[np.float32]:
        loader = Loader(
            self.data, split, batch_size=self.config.batch_size, device=self.place.device, memory=self.place.memory
        )

        def progress(done: int) -> None:
            self.place.emit(Progress(f"score {split}", done, num_rows))

        with self._timed("score rows"):
            return predict(self.model, loader, progress=progress)

    def _rank(
        self, asked: EvaluationTask, tables: DimensionTables, by_now: TrainingContext
    ) -> tuple[dict[str, Ranked], int]:
        """Rank with the model and the baselines; the rankings by system, and the users without recommendations."""
        found: dict[str, Ranked] = {}
        num_empty = 0
        for name, scorer in self._scorers(asked, tables, by_now).items():
            with self._timed(f"rank by {name}"):
                found[name], num_empty = self._rank_by(name, scorer, asked)
        return found, num_empty

    def _scorers(self, asked: EvaluationTask, tables: DimensionTables, by_now: TrainingContext) -> dict[str, Scorer]:
        """Return who ranks, by system; nobody where there is nothing to rank, and a note says why."""
        schema, device = self.data.schema, self.place.device
        if asked.by_user.num_folded and not self.model.folds_in:
            self.notes.append(NO_FOLD_IN)
            return {}
        if (reason := why_not(self.model, asked.held_out, tables, schema, device=device)) is not None:
            self.notes.append(f"No ranking: {reason}.")
            return {}
        self.notes += on_new_users(asked, self.model)
        systems = {MODEL: self.model}
        known = TrainingContext(lambda: asked.by_user.hidden(asked.by_user.train.observed()), tables.join)
        cache = FittedCache(self.data.folder / "baselines")
        for name in BASELINES:
            with self._timed(f"fit {name}"):
                systems[name] = fit_baseline(name, schema, known, by_now, device=device, cache=cache)
        self.notes += _on_left_out(systems)
        return {name: self._scorer(system, asked, tables) for name, system in systems.items()}

    def _scorer(self, system: Model, asked: EvaluationTask, tables: DimensionTables) -> Scorer:
        schema = self.data.schema
        candidates = torch.from_numpy(asked.held_out.candidates).to(self.place.device)
        history = asked.by_user.cold.hidden(asked.by_user.history)
        loans = TemporaryIds(asked.new_users, history, schema.only(Role.USER).own_ids, tables.join)

        def make() -> Scorer:
            return ModelScorer(system, tables, schema, candidates, batch_size=self.config.batch_size)

        return FoldInScorer(system, make, asked.by_user.new, loans, candidates)

    def _rank_by(self, name: str, scorer: Scorer, asked: EvaluationTask) -> tuple[Ranked, int]:
        def progress(done: int) -> None:
            self.place.emit(Progress(f"rank by {name}", done, len(asked.held_out.user_idx), unit="users"))

        progress(0)  # the first users may take minutes
        return rank(asked.held_out, scorer, cut_off=max(self.config.k), progress=progress)

    def _beyond(self, ranked: Mapping[str, Ranked], asked: EvaluationTask) -> dict[str, Estimates]:
        if not ranked:
            return {}
        candidates = asked.held_out.candidates
        catalog = catalog_of(candidates, asked.by_user.train.observed(), DimensionTables(self.data), self.data.schema)
        return {name: measure_lists(lists, asked.held_out, catalog, self.config) for name, lists in ranked.items()}

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[what] = round(time.perf_counter() - started, 3)


def _on_left_out(systems: Mapping[str, Model]) -> Iterator[str]:
    """Yield a note for each system that does not know all items."""
    for name, system in systems.items():
        if system.left_out is not None:
            yield system.left_out.sentence("The model" if name == MODEL else f"The baseline {name}") + "."
