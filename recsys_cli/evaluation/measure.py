"""Measures a model on prepared data from end to end: rows first, then rankings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.baselines import RANKING as BASELINES
from recsys_cli.evaluation.bootstrap import mean_estimates
from recsys_cli.evaluation.held_out import HeldOut, candidate_items, hold_out
from recsys_cli.evaluation.known import known_of
from recsys_cli.evaluation.metrics import RANKING as METRICS
from recsys_cli.evaluation.metrics import Hits
from recsys_cli.evaluation.pointwise import Rows, measure_rows, predict
from recsys_cli.evaluation.ranking import Scorer, rank
from recsys_cli.evaluation.result import MODEL, Estimates, Measured
from recsys_cli.evaluation.scorers import BaselineScorer, ModelScorer, why_not
from recsys_cli.evaluation.words import count, describe, ranks_worse
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.features.schema import Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader import Loader, Tables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class Place:
    """Where and within which bounds to compute; changes no figure.

    Attributes:
        device: Where the model is, and where to rank.
        memory: Budget of the loader in MiB.
        emit: Takes progress.
    """

    device: torch.device | str = "cpu"
    memory: int = 4_096
    emit: Emit = ignore


def measure(model: Model, data: PreparedData, config: EvaluateConfig, *, place: Place | None = None) -> Measured:
    """Measure a model and the baselines on the same rows and users.

    Args:
        model: In evaluation mode, on the place's device.
        data: Where the rows are.
        config: What to measure.
        place: Where to compute.

    Raises:
        ConfigError: The split has no rows.
        DataError: The labels are not 0 and 1.
        TrainingError: The model's scores are no numbers.
    """
    return _Measurement(model, data, config, place or Place()).run()


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
    place: Place
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Measured:
        split = choose_split(self.data, self.config)
        num_items = int(self.data.schema.only(Role.ITEM).cardinality or 0)
        earlier = ("train", "valid") if split == "test" else ("train",)
        tables = Tables(self.data, device=self.place.device)
        self.model.begin(known_of(self.data, *earlier, tables=tables))
        with self._timed("read"):
            train, rows = read_interactions(self.data, "train"), read_interactions(self.data, split)
            met = train.met()
            history = met + read_interactions(self.data, "valid").met() if split == "test" else met
        logits = self._score_rows(split, len(rows))
        with self._timed("metrics of rows"):
            of_rows = measure_rows(logits, Rows(rows, train, num_items), config=self.config)
        candidates = candidate_items(met, num_items=num_items)
        with self._timed("prepare the ranking"):
            held_out = hold_out(rows.met(), history, candidates=candidates, num_items=num_items, config=self.config)
        ranking, num_empty = self._rank(held_out, met, num_items, tables)
        counts = count(rows, train, held_out, num_empty=num_empty)
        return Measured(
            split=split,
            pointwise=of_rows.estimates,
            reliability=of_rows.reliability,
            roc=of_rows.roc,
            precision_recall=of_rows.precision_recall,
            ranking=ranking,
            counts=counts,
            protocol=describe(split, self.config, counts),
            notes=tuple(self.notes),
            seconds=self.seconds,
        )

    def _score_rows(self, split: str, num_rows: int) -> npt.NDArray[np.float32]:
        loader = Loader(
            self.data, split, batch_size=self.config.batch_size, device=self.place.device, memory=self.place.memory
        )

        def progress(done: int) -> None:
            self.place.emit(Progress(f"score {split}", done, num_rows))

        with self._timed("score rows"):
            return predict(self.model, loader, progress=progress)

    def _rank(
        self, held_out: HeldOut, train: Interactions, num_items: int, tables: Tables
    ) -> tuple[dict[str, Estimates], int]:
        """Rank with the model and the baselines; the estimates by system, and the users without recommendations."""
        scorers = self._scorers(held_out, train, num_items, tables)
        found: dict[str, Hits] = {}
        num_empty = 0
        for name, scorer in scorers.items():
            with self._timed(f"rank by {name}"):
                found[name], num_empty = self._rank_by(name, scorer, held_out)
        with self._timed("metrics of rankings"):
            estimates = {name: self._estimates(hits) for name, hits in found.items()}
        if (worse := ranks_worse(estimates)) is not None:
            self.notes.append(worse)
        return estimates, num_empty

    def _scorers(self, held_out: HeldOut, train: Interactions, num_items: int, tables: Tables) -> dict[str, Scorer]:
        """Return who ranks, by system; nobody where there is nothing to rank, and a note says why."""
        schema, device = self.data.schema, self.place.device
        if (reason := why_not(self.model, held_out, tables, schema, device=device)) is not None:
            self.notes.append(f"No ranking: {reason}.")
            return {}
        candidates = torch.from_numpy(held_out.candidates).to(device)
        scorer = ModelScorer(self.model, tables, schema, candidates, batch_size=self.config.batch_size)
        scorers: dict[str, Scorer] = {MODEL: scorer}
        for name, baseline in BASELINES.items():
            fitted = baseline.fit(train, num_items=num_items)
            scorers[name] = BaselineScorer(fitted, held_out.candidates, device=device)
        return scorers

    def _rank_by(self, name: str, scorer: Scorer, held_out: HeldOut) -> tuple[Hits, int]:
        def progress(done: int) -> None:
            self.place.emit(Progress(f"rank by {name}", done, len(held_out.user_idx), unit="users"))

        return rank(held_out, scorer, cut_off=max(self.config.k), progress=progress)

    def _estimates(self, hits: Hits) -> Estimates:
        columns = [(metric, k) for k in sorted(set(self.config.k)) for metric in METRICS.values()]
        values = np.stack([metric.compute(hits, k) for metric, k in columns], axis=1)
        estimates = mean_estimates(values, resamples=self.config.bootstrap, seed=self.config.seed)
        return {f"{metric.name}@{k}": found for (metric, k), found in zip(columns, estimates, strict=True)}

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[what] = round(time.perf_counter() - started, 3)
