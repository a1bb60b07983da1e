"""Trials and studies as plain values, independent of Optuna."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from recsys_cli.config.tune import TuneConfig, assignment

State = Literal["finished", "pruned", "failed", "running"]


@dataclass(frozen=True)
class EpochFigure:
    """The monitored metric after an epoch, from 1; `quality` has the sign for higher is better."""

    epoch: int
    value: float | None
    quality: float


@dataclass(frozen=True)
class Trial:
    """A trial of a study.

    Attributes:
        number: Number of the trial, from 1.
        state: `finished`, `pruned` (stopped early), `failed` (training error) or `running`.
        changes: Sampled values by key.
        quality: Final quality, higher is better; None unless finished.
        value: Monitored metric of the best epoch.
        notes: Further facts: `run`, `seconds`, `message`, `begun`, `since`.
    """

    number: int
    state: State
    changes: Mapping[str, Any]
    quality: float | None = None
    value: float | None = None
    curve: Sequence[EpochFigure] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overrides(self) -> list[str]:
        """Overrides of the config for this trial."""
        return [assignment(key, value) for key, value in self.changes.items()]


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the first finished trial of the highest quality; None without finished trials."""
    finished = [trial for trial in trials if trial.state == "finished" and trial.quality is not None]
    return max(finished, key=lambda trial: (trial.quality, -trial.number), default=None)


_ORDER: tuple[State, ...] = ("finished", "pruned", "running", "failed")


def gather(trials: Sequence[Trial], config: TuneConfig, *, runs: Collection[str]) -> dict[str, Any]:
    """Return search space, number of its combinations, number of trials by state, best trial and ranking."""
    counted = Counter(trial.state for trial in trials)
    best = best_of(trials)
    return {
        "space": {key: values.model_dump(mode="json", exclude_defaults=True) for key, values in config.space.items()},
        "combinations": config.combinations,
        "trials": {"wanted": config.trials, **{state: counted[state] for state in _ORDER}},
        "best": _entry(best, 1, runs) if best is not None else None,
        "ranking": [_entry(trial, rank, runs) for rank, trial in enumerate(sorted(trials, key=_sort_key), start=1)],
    }


def caveat(study: Mapping[str, Any]) -> str | None:
    """Return the caveat about the best value of `gather`: selection on valid is optimistic. None without a best trial."""
    best, metric = study["best"], study["metric"]["name"]
    if best is None:
        return None
    values = [e["value"] for e in study["ranking"] if e["state"] == "finished" and e["value"] is not None]
    on_test = "recsys evaluate measures the run on test"
    if len(values) < 2:
        return f"trial {best['trial']} is the only finished one; its epoch is selected by {metric} on valid: {on_test}"
    if best["trial"] == 1:
        return f"no trial beats the config's own values, trial 1, by {metric} on valid: keep the config as it is"
    return (
        f"best of {len(values)} finished trials by {metric} on valid, an optimistic estimate: {on_test}; the median trial has "
        f"{median(values):.4f}, and the difference is not tested for significance"
    )


def line(trial: Trial) -> str:
    """Return the overrides of a trial, quoted for a shell."""
    return shlex.join(trial.overrides)


def _sort_key(trial: Trial) -> tuple[int, float, int]:
    quality = trial.quality if trial.quality is not None else max((epoch.quality for epoch in trial.curve), default=0.0)
    return _ORDER.index(trial.state), -quality, trial.number


def _entry(trial: Trial, rank: int, runs: Collection[str]) -> dict[str, Any]:
    curve, run = [epoch.value for epoch in trial.curve], trial.notes.get("run")
    return {
        "rank": rank if trial.state == "finished" else None,
        "trial": trial.number,
        "state": trial.state,
        "value": trial.value if trial.state == "finished" else next(reversed(curve), None),
        "changes": dict(trial.changes),
        "overrides": line(trial),
        "epochs": len(curve),
        "curve": curve,
        "seconds": trial.notes.get("seconds"),
        "run": run if run in runs else None,
        "message": trial.notes.get("message"),
    }
