"""Options, entrants, result and journal of a race. Importing it does not import torch: a finished race is read at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_cli.config import RunConfig
from recsys_cli.evaluation.compare.leaderboard import LeaderboardRow, SeededScore, with_interval
from recsys_cli.frozen import Frozen
from recsys_cli.metrics.named import figure
from recsys_cli.models import kind_of
from recsys_cli.stages.etl import data_key
from recsys_cli.workspace import Workspace, key_of, read_json, write_json


class RaceOptions(Frozen):
    """What is asked of a race."""

    minutes: float
    """Wall-clock time of all calls."""
    metric: str
    """Metric of the order, on valid."""
    memory_mib: int | None = None
    """Budget of matrices and loaders; None for the defaults of the models."""
    latency_ms: float | None = None
    """Most milliseconds of 95 in 100 requests."""


@dataclass
class Entrant:
    """A model in the race.

    Attributes:
        why: Why it runs.
        model: Its `model` section, with its `train` section as `train`.
        run: Name of its finished run.
        value: The metric on valid, of its best epoch so far.
        seconds: Time of its training.
        note: Why it has no value, or ended.
    """

    label: str
    why: str
    model: dict[str, Any]
    run: str | None = None
    value: float | None = None
    seconds: float = 0.0
    note: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether it is fitted at once."""
        return kind_of(self.model["name"]).rows == "all"

    def line(self, score: SeededScore | None) -> str:
        """Return its figures and the reason."""
        test = f", test {with_interval(score)}" if score is not None and score.interval else ""
        return f"{self.label}: valid {figure(self.value)}{test}; {self.note or self.why}"


class RaceResult(Frozen):
    """The winner of a race, and its figures."""

    options: RaceOptions
    winner: str
    run: str
    """Run to serve."""
    on_all_rows: bool
    """Whether the run has seen all rows; else those of train."""
    entrants: tuple[Entrant, ...]
    """All models, best first by valid."""
    board: tuple[LeaderboardRow, ...]
    """The best ones and the baselines on rows that chose nothing."""
    verdict: str
    seconds: float


@dataclass
class Journal:
    """The file of a race, for all calls of any number of minutes.

    Attributes:
        seconds: Time of all calls.
        result: That of the longest finished race.
        config: Its config as text.
    """

    path: Path
    seconds: float = 0.0
    result: RaceResult | None = None
    config: str = ""

    @classmethod
    def open(cls, config: RunConfig, workspace: Workspace, options: RaceOptions) -> Journal:
        """Read the journal of a race on the data of a config; it is empty before the first call."""
        key = key_of("auto", data_key(config, workspace), options.model_dump(exclude={"minutes"}))
        path = workspace.root / "auto" / f"{key[:16]}.json"
        if not path.is_file():
            return cls(path)
        saved = read_json(path, hint=f"remove {path}")
        result = saved["result"] and RaceResult.model_validate(saved["result"])
        return cls(path, saved["seconds"], result, saved.get("config", ""))

    def finished(self, minutes: float, workspace: Workspace) -> RaceResult | None:
        """Return the result of a race of at least some minutes, if its run is still there."""
        result = self.result
        if result is None or not self.config or result.options.minutes < minutes:
            return None
        return result if workspace.run_named(result.run).exists else None

    def save(self, seconds: float) -> None:
        """Write the journal, with the time of all calls."""
        self.seconds = seconds
        self.path.parent.mkdir(parents=True, exist_ok=True)
        result = None if self.result is None else self.result.model_dump(mode="json")
        write_json(self.path, {"seconds": seconds, "result": result, "config": self.config})
