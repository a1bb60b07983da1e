"""A study in plain values: the trials from best to worst, for the manifest, the table, the page and --json alike."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any

from recsys_cli.config.tune import TuneConfig
from recsys_cli.tuning.trial import State, Trial, best_of

_ORDER: tuple[State, ...] = ("finished", "pruned", "running", "failed")


def gather(trials: Sequence[Trial], config: TuneConfig, *, runs: Collection[str]) -> dict[str, Any]:
    """Return what there is to know of a study.

    Args:
        trials: All of them.
        config: What was searched.
        runs: Names of the runs that are there.
    """
    counted = Counter(trial.state for trial in trials)
    best = best_of(trials)
    return {
        "space": {key: values.model_dump(mode="json", exclude_defaults=True) for key, values in config.space.items()},
        "trials": {"wanted": config.trials, **{state: counted[state] for state in _ORDER}},
        "best": _entry(best, 1, runs) if best is not None else None,
        "ranking": [_entry(trial, place, runs) for place, trial in enumerate(sorted(trials, key=_place), start=1)],
    }


def caveat(found: Mapping[str, Any]) -> str | None:
    """Say what the best figure is worth; None without a best trial.

    Args:
        found: What `gather` returned, of now or of an earlier version.
    """
    best, metric = found["best"], found["metric"]["name"]
    if best is None:
        return None
    reached = [e["value"] for e in found["ranking"] if e["state"] == "finished" and e["value"] is not None]
    on_test = "recsys evaluate measures the run on test"
    if len(reached) < 2:
        return (
            f"trial {best['trial']} is the only finished one, and its epoch was chosen by {metric} on valid: {on_test}"
        )
    return (
        f"the best of {len(reached)} finished trials by {metric} on valid, which is optimistic: {on_test}; the median trial has "
        f"{median(reached):.4f}, and whether the difference is more than chance was not measured"
    )


def line(trial: Trial) -> str:
    """Return what a trial changes, ready to be pasted behind a command."""
    return shlex.join(trial.overrides)


def _place(trial: Trial) -> tuple[int, float, int]:
    reached = trial.quality if trial.quality is not None else max((then.quality for then in trial.curve), default=0.0)
    return _ORDER.index(trial.state), -reached, trial.number


def _entry(trial: Trial, rank: int, runs: Collection[str]) -> dict[str, Any]:
    measured, run = [then.value for then in trial.curve], trial.notes.get("run")
    return {
        "rank": rank if trial.state == "finished" else None,
        "trial": trial.number,
        "state": trial.state,
        "value": trial.value if trial.state == "finished" else next(reversed(measured), None),
        "changes": dict(trial.changes),
        "overrides": line(trial),
        "epochs": len(measured),
        "curve": measured,
        "seconds": trial.notes.get("seconds"),
        "run": run if run in runs else None,
        "message": trial.notes.get("message"),
    }
