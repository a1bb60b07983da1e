"""`recsys auto`: models in a race against the clock; the winner is trained again on all rows.

Every entrant is an ordinary run. The clock interrupts as Ctrl-C does, so that a later call continues a cut training. A training cut
after some epochs ends as the run of so many epochs, which is the same by construction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from recsys_cli.config import BenchModel, RunConfig, from_values, with_model
from recsys_cli.config.load import model_config_type
from recsys_cli.config.tune import TuneConfig
from recsys_cli.errors import ConfigError, MissingExtraError, RecsysError, TrainingError
from recsys_cli.evaluation.compare.leaderboard import LeaderboardRow, standings_of
from recsys_cli.events import Emit, Event, Message, Progress, divert_messages
from recsys_cli.features.schema import Role
from recsys_cli.features.split import SPLITS
from recsys_cli.metrics.named import CutOff, check_reported, find_metric, sort_key
from recsys_cli.registry import AUTO, DEFAULT_MODEL
from recsys_cli.stages.auto import quick_models, value_on_valid
from recsys_cli.stages.entrants import LABELS, QUICK_LABELS, STEPS, end_early, latency, unmeasurable
from recsys_cli.stages.etl import etl, warn_of
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.monitor import order_of
from recsys_cli.stages.race_result import Entrant, Journal, RaceOptions, RaceResult
from recsys_cli.stages.run_selection import finished_run, header_of, run_key, unfinished_run
from recsys_cli.stages.timed import Clock, Timed
from recsys_cli.stages.train import train_on
from recsys_cli.stages.tune import study_key, tune_on
from recsys_cli.stages.winner import config_text, keeps_split, race_sections, suspicion, verdict_on, winner_sections
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

T = TypeVar("T")
_QUICK, _ROUND = 0.25, 0.5
"""Share of the time for a model fitted at once, and share of the time left for a round of several trainings."""
_EASE_SECONDS = 300.0
"""Time of a race, in seconds, from which on EASE of a large catalog with long histories takes part with all items."""
_FEW_EPOCHS = 3
"""Epochs in a round below which the first entrant runs alone."""
_FINALISTS, _TRIALS = 3, 30
"""Entrants on the leaderboard, and trials around the leader."""
_NO_TIME, _NOTED = "no time for it", 5.0
_LATE = (_NO_TIME, "not fitted in", "cut after")
"""First words of notes that more time would change."""
_LAST, _GRACE, _MOST_GRACE = 2.0, 0.02, 20.0
"""Seconds to write the result; from an interrupt to a kill, as a share of the time and in seconds."""
_MARGIN = 1.3
"""Expected times are exceeded by so much on a busy machine."""


def race(
    config: RunConfig, workspace: Workspace, options: RaceOptions, *,
    clock: Clock, write: Callable[[str], None], emit: Emit, again: str = "recsys auto CONFIG",
) -> RaceResult:  # fmt: skip
    """Prepare the data, run the race, and train the winner on all rows; a later call goes on, within the same minutes or more.

    Args:
        config: Data and features; its model does not run.
        workspace: Where the runs are.
        options: Time and metric.
        clock: Started by the caller: imports and the look at the table count.
        write: Receives the config of each new leader.
        emit: Receives messages and progress.
        again: Command that takes other keys of the config at its end.

    Raises:
        ConfigError: The metric is unknown or does not fit the data.
        TrainingError: No model was ready in time, or valid has nothing to measure.
        KeyboardInterrupt: Interrupted; the next call goes on.
    """
    own = _Race(config, workspace, options, clock, write, emit, again)
    try:
        own.prepare()
        own.fit_quick()
        own.train_rounds()
        own.tune_leader()
        return own.finish()
    finally:
        own.timed.close()


@dataclass
class _Race:
    config: RunConfig
    workspace: Workspace
    options: RaceOptions
    clock: Clock
    write: Callable[[str], None]
    emit: Emit
    again: str = ""

    def __post_init__(self) -> None:
        check_reported(self.options.metric)
        self.undefined = f"{self.options.metric} is undefined on valid"
        self.ranks = isinstance(find_metric(self.options.metric), CutOff)
        self.better = order_of(self.options.metric).better
        self.sections = race_sections(self.config, self.options)
        self.cold_items = self.config.model.options.get("cold_items")
        self.config = from_values({**self.sections, "model": {"name": AUTO if self.ranks else DEFAULT_MODEL}})
        grace = min(_MOST_GRACE, _GRACE * self.clock.seconds)
        memory = None if self.options.memory_mib is None else self.options.memory_mib << 20
        self.timed = Timed(grace=grace, memory=memory, emit=divert_messages(self._hear, lambda _: None))
        self.journal = Journal.open(self.config, self.workspace, self.options)
        self.last = grace + _LAST
        self.entrants: dict[str, Entrant] = {}
        self.evaluating = 0.0
        self.announced: str | None = None
        self.keeps_split = keeps_split(self.sections)

    def prepare(self) -> None:
        """Prepare the data."""
        started = time.monotonic()
        made = self._call(etl, self.config, self.workspace)
        if made is None:
            raise TrainingError(
                f"preparing the data takes longer than {self.options.minutes:g} min", hint="give more --minutes"
            )
        self.data = made.artifact
        self.is_warned = warn_of(self.data, self.emit)
        self.preparing = max(time.monotonic() - started, float(self.data.manifest["seconds"]["total"]))
        self.clock.before = self.journal.seconds

    def _hear(self, event: Event) -> None:
        """Forward progress, and note the time: a kill then loses seconds."""
        self.emit(event)
        if self.clock.spent > self.journal.seconds + _NOTED:
            self.journal.save(self.clock.spent)

    # The phases

    def fit_quick(self) -> None:
        """Fit the models of one pass, simple ones first, and evaluate the best: it can be served."""
        models: dict[str, dict[str, Any]] = dict(QUICK_LABELS)
        if self.ranks:
            models, _ = quick_models(self.data, repeats=self.config.evaluate.repeats)
            models = {label: model for label, model in models.items() if model["name"] != "sasrec"}
            models["ials"] = {"name": "ials"}
            if "max_items" in models["ease"] and self.clock.seconds > _EASE_SECONDS:
                models["ease, all items"] = {"name": "ease"}
        early = {} if self.data.rows("valid") else {"early_stopping": 1}
        for label, model in models.items():
            why = "a baseline" if model["name"] == "popularity" else "fitted in one pass"
            self._enter(label, why, {**model, "train": {"devices": 1, **early, **model.get("train", {})}})
        self._train_each([*self.entrants.values()], self.clock.seconds * (_QUICK if self.ranks else _ROUND))
        if (leader := self.leader) is not None:
            started = time.monotonic()
            self._evaluate(leader, self.clock.seconds * _QUICK)
            self.evaluating = time.monotonic() - started

    def train_rounds(self) -> None:
        """Train the others in rounds: each gets a share of the time, and the better half goes on."""
        has_times = self.data.schema.select(lambda column: column.role is Role.TIMESTAMP and column.table is None)
        models = {} if self.ranks and not has_times else STEPS if self.ranks else LABELS
        alive = [self._enter(label, *model) for label, model in models.items()]
        while alive and self._time() > 0:
            share = self._time() * (_ROUND if len(alive) > 1 else 1.0) / len(alive)
            first = alive[0]
            self._train_each(alive[:1], share)
            if first.run is None and not first.note and len(self._epochs(first)) < _FEW_EPOCHS and len(alive) > 1:
                kept = [first]
            else:
                self._train_each(alive[1:], share)
                measured = self._ordered(one for one in alive if one.value is not None)
                kept = measured[: max(1, len(alive) // 2)] or [one for one in alive if not one.note][:1]
            for one in alive:
                one.note = one.note or ("" if one in kept or one.run else "behind" if one.seconds else _NO_TIME)
            alive = [one for one in kept if one.run is None and not one.note] if len(alive) > 1 else []
        for one in alive:
            one.note = _NO_TIME
        while (leader := self.leader) is not None and leader.run is None:
            self._end_early(leader)

    def tune_leader(self) -> None:
        """Search the options of the leader as long as there is time."""
        leader, seconds = self.leader, self._time()
        if leader is None or leader.run is None or seconds < 5 * leader.seconds + 1:
            return
        config = self._config(leader).model_copy(update={"tune": TuneConfig(minutes=seconds / 60, trials=_TRIALS)})
        best = None
        with suppress(MissingExtraError, ConfigError, TrainingError):  # without Optuna, or options to search
            study = self.workspace.study(study_key(config, self.data))
            self._call(tune_on, self.data, config, self.workspace, seconds=seconds)
            best = study.manifest["best"] if study.exists else None
        if best is None or best["run"] is None or best["trial"] == 1:
            return
        model: dict[str, Any] = {**leader.model, "train": {**leader.model["train"]}}
        for key, value in best["changes"].items():
            section, _, option = key.partition(".")
            (model if section == "model" else model["train"])[option] = value
        tuned = self._enter(f"{leader.label} tuned", "the best of some trials around the leader", model)
        tuned.run, tuned.value, tuned.seconds = best["run"], best["value"], best["seconds"]

    def finish(self) -> RaceResult:
        """Test the winner, train it on all rows, and test the others in the time that is left."""
        finished = [
            one for one in self._ordered(self.entrants.values()) if one.run is not None and one.value is not None
        ]
        if not finished:
            notes = "; ".join(f"{one.label}: {one.note}" for one in self.entrants.values() if one.note)
            raise TrainingError(
                f"no model was ready within {self.options.minutes:g} min{f' ({notes})' if notes else ''}",
                hint=f"the same command with more --minutes{' or --memory' if self.options.memory_mib else ''} goes on"
                if any(one.note.startswith(_LATE) for one in self.entrants.values())
                else f"more time does not help; the rows are in {self.data.report}",
            )
        models: dict[str, Entrant] = {}
        for one in finished:  # the test is among different models, not options of one
            models.setdefault(one.model["name"], one)
        winner, *others = [*models.values()][:_FINALISTS]
        tested = [winner] if self._evaluate(winner) else []
        self._write(winner, "Trained on train alone so far.")
        name = None if self.keeps_split else self._train_on_all_rows(winner)
        tested += [one for one in others if tested and self._evaluate(one)]
        board = self._leaderboard(tested)
        untried = [one.label for one in self.entrants.values() if one.note == _NO_TIME]
        verdict = verdict_on(winner.label, board) + suspicion(self.options.metric, winner.value)
        verdict += f" The data report has warnings: {self.data.report}." if self.is_warned else ""
        verdict += f" No time for {', '.join(untried)}." if untried else ""
        result = self._write(winner, verdict, board, name)
        self.journal.result, self.journal.config = result, self.text
        self.journal.save(self.clock.spent)
        return result

    def _train_on_all_rows(self, winner: Entrant) -> str | None:
        config = from_values(self._sections(winner))
        made = self._call(etl, config, self.workspace)
        run = None if made is None else self._train_run(made.artifact, config)
        return None if run is None else run.folder.name

    def _leaderboard(self, tested: Sequence[Entrant]) -> tuple[LeaderboardRow, ...]:
        """Return the tested ones and the baselines of their evaluations, with the differences from the best."""
        if not tested:
            return ()
        options = self.config.evaluate
        metric = f"{options.label}{self.options.metric}" if self.ranks else self.options.metric
        return standings_of(
            {one.label: [self.workspace.run(str(one.run))] for one in tested}, [metric],
            deterministic=[one.label for one in tested if one.is_closed],
            resamples=options.bootstrap, seed=options.seed,
        )  # fmt: skip

    # Entrants

    @property
    def leader(self) -> Entrant | None:
        """The best by valid so far."""
        return next((one for one in self._ordered(self.entrants.values()) if one.value is not None), None)

    def _ordered(self, entrants: Iterable[Entrant]) -> list[Entrant]:
        return sorted(entrants, key=lambda one: sort_key(one.value, self.better))

    def _enter(self, label: str, why: str, model: Mapping[str, Any]) -> Entrant:
        train = {"monitor": self.options.metric, **model.get("train", {})}
        if self.cold_items and "cold_items" in model_config_type(model["name"]).model_fields:
            model = {"cold_items": self.cold_items, **model}
        return self.entrants.setdefault(label, Entrant(label, why, {**model, "train": train}))

    def _config(self, one: Entrant) -> RunConfig:
        return with_model(self.config, BenchModel.model_validate(one.model), seed=self.config.train.seed)

    def _epochs(self, one: Entrant) -> list[dict[str, Any]]:
        """Return the epochs of an interrupted training."""
        run = unfinished_run(self.workspace, run_key(self._config(one), self.data))
        header = {} if run is None else header_of(run.checkpoint("last"))
        epochs: list[dict[str, Any]] = header.get("progress", {}).get("history", [])
        return epochs

    def _train_each(self, entrants: Sequence[Entrant], seconds: float) -> None:
        """Train entrants for some seconds each, from where they are; an error is a note."""
        for number, one in enumerate(entrants):
            self.emit(Progress("race", number, len(entrants), "models", {"now": one.label}, steady=False))
            started = time.monotonic()
            try:
                self._train(one, self._config(one), seconds)
            except (RecsysError, MemoryError, RuntimeError) as error:
                one.note = error.message if isinstance(error, RecsysError) else str(error).partition("\n")[0]
            one.seconds += time.monotonic() - started
            self.journal.save(self.clock.spent)
            self._announce()
            if one.note == self.undefined and self.leader is None:
                raise unmeasurable(self.data, self.options.metric, ranks=self.ranks, again=self.again)

    def _train(self, one: Entrant, config: RunConfig, seconds: float) -> None:
        made = finished_run(self.workspace, run_key(config, self.data), self.emit)
        run = made or self._train_run(self.data, config, seconds)
        values: list[float | None] = []
        if run is not None:
            values, one.run = [value_on_valid(run, self.options.metric)], run.folder.name
            one.seconds = max(one.seconds, float(run.manifest["seconds"]["train"]))
        elif one.is_closed:
            one.note = f"not fitted in {seconds:.0f} s"
        else:
            values = [epoch["valid"].get(self.options.metric) for epoch in self._epochs(one)]
        one.value = min(values, key=lambda value: sort_key(value, self.better), default=None)
        if run is not None:
            self._check_latency(one)
        if one.value is None and values:
            one.note = one.note or self.undefined

    def _train_run(self, data: PreparedData, config: RunConfig, seconds: float = math.inf) -> TrainedRun | None:
        """Train or continue a config."""
        made = self._call(partial(train_on, resume=None), data, config, self.workspace, seconds=seconds)
        return None if made is None else made.artifact

    def _end_early(self, one: Entrant) -> None:
        """End the training of an entrant as a run of the epochs that it has."""
        before, epochs = self._config(one), len(self._epochs(one))
        one.model["train"]["epochs"], one.note = epochs, f"cut after {epochs} epoch{'s' * (epochs > 1)}"
        one.run = self._call(end_early, self.data, before, self._config(one), self.workspace)
        if one.run is None:
            one.value, one.note = None, _NO_TIME
        else:
            self._check_latency(one)

    def _evaluate(self, one: Entrant, seconds: float = math.inf) -> bool:
        run = self.workspace.run(str(one.run))
        task = partial(evaluate, config=self.config.evaluate)
        return self._call(task, run, self.workspace, seconds=seconds) is not None

    def _check_latency(self, one: Entrant) -> None:
        if (limit := self.options.latency_ms) is None:
            return
        took = self._call(latency, self.workspace.run(str(one.run)), self.workspace)
        if took is None or took > limit:
            one.note, one.value = f"a request takes {took or math.nan:.1f} ms, more than {limit:g}", None

    def _call(self, task: Callable[..., T], *arguments: Any, seconds: float = math.inf) -> T | None:
        return self.timed.call(task, *arguments, seconds=min(seconds, self.clock.left - self.last))

    def _announce(self) -> None:
        """Tell of a new leader, and write its config."""
        leader = self.leader
        if leader is None or leader.run is None or leader.run == self.announced:
            return
        self.announced = leader.run
        self._write(leader, "The race goes on.")
        what = f"{leader.label} leads after {self.clock.spent:.0f} s, with {leader.value:.4f} on valid"
        self.emit(Message(f"{what}: run {leader.run}", facts=asdict(leader)))

    # Expected times

    def _time(self) -> float:
        """Return the seconds for more training: those left without the test of the winner and its training on all rows."""
        refitting = 0.0 if self.leader is None else self._refitting(self.leader)
        return self.clock.left - self.last - _MARGIN * self.evaluating - refitting

    def _refitting(self, leader: Entrant) -> float:
        rows = sum(self.data.rows(split) for split in SPLITS) / max(1, self.data.rows("train"))
        return 0.0 if self.keeps_split else _MARGIN * rows * (self.preparing + leader.seconds)

    # The config of the winner

    def _sections(self, one: Entrant) -> dict[str, Any]:
        epochs = None if one.is_closed else self.workspace.run(str(one.run)).manifest["best_epoch"]
        return winner_sections(self.sections, one, epochs)

    def _write(
        self, one: Entrant, verdict: str, board: Sequence[LeaderboardRow] = (), name: str | None = None
    ) -> RaceResult:
        """Write the config of the leader with the figures so far, and return these; `name` is its run on all rows."""
        result = RaceResult(
            options=self.options, winner=one.label, run=name or str(one.run), on_all_rows=name is not None,
            entrants=tuple(self._ordered(self.entrants.values())), board=board, verdict=verdict, seconds=self.clock.spent,
        )  # fmt: skip
        self.text = config_text(self.sections, self._sections(one), result)
        self.write(self.text)
        return result
