"""Experiment trackers: they receive the lines of metrics.jsonl, and their failures never stop the training.

A tracker of another package derives from `Tracker` (docs/security.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from recsys_cli.events import Emit, Message
from recsys_cli.plugins import require_subclass
from recsys_cli.registry import TRACKERS, is_own, load, lookup
from recsys_cli.workspace import TrainedRun

__all__ = ["Series", "Tracker", "Trackers", "find", "flat"]


@dataclass(frozen=True)
class Series:
    """Series of metrics of one run, named by its folder.

    Attributes:
        config: Config as plain values.
        done: Finished steps: 0, or the step of a resumed run.
    """

    run: TrainedRun
    config: Mapping[str, Any]
    done: int = 0


class Tracker(Protocol):
    """Logs metrics by step to another program. Created as `Class(series)`; may raise any exception.

    Attributes:
        rewinds: Whether it purges steps after `series.done`. Without it, a resumed run does not log these steps again;
            their values are the same.
    """

    rewinds: ClassVar[bool]

    def __init__(self, series: Series) -> None: ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log metrics.

        Args:
            step: Steps since the start of training; never decreases between calls.
            values: Metrics by names such as `step/loss` and `epoch/valid/auc`; NaN if not finite.
        """

    def close(self, *, finished: bool) -> None:
        """Flush and release all resources.

        Args:
            finished: Whether training is complete; otherwise it may be resumed.
        """


def flat(values: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to one level, with key paths as names; lists stay as they are."""
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{separator}{name}" if prefix else str(name)
        leaves.update(flat(value, separator, path) if isinstance(value, Mapping) else {path: value})
    return leaves


def find(names: Sequence[str]) -> dict[str, type[Tracker]]:
    """Import tracker classes by name, before training starts.

    Raises:
        ConfigError: A tracker is unknown or untrusted, or not a `Tracker`.
        MissingExtraError: A package of a tracker is not installed.
    """
    found: dict[str, type[Tracker]] = {}
    for name in names:
        path = lookup(TRACKERS, name, what="tracker")
        found[name] = load(path)
        if not is_own(path):
            require_subclass(found[name], Tracker, path)
    return found


class Trackers:
    """Passes the lines of metrics.jsonl to all trackers. A failed one is reported once and dropped."""

    def __init__(self, classes: Mapping[str, type[Tracker]], emit: Emit) -> None:
        self._classes = classes
        self._emit = emit
        self._open: dict[str, Tracker] = {}
        self._logged: Mapping[str, int] = {}

    @contextmanager
    def session(self, series: Series, *, logged: Mapping[str, int]) -> Iterator[None]:
        """Start or resume a series for the duration of a block.

        `logged` is the last logged step of each event before an interruption; a killed run is ahead of its checkpoint.
        """
        self._logged = logged
        for name, tracker in self._classes.items():
            self._try(name, partial(self._start, name, tracker, series))
        finished = False
        try:
            yield
            finished = True
        finally:
            while self._open:
                name, opened = self._open.popitem()
                self._try(name, partial(opened.close, finished=finished))

    def log(self, line: Mapping[str, Any]) -> None:
        """Log a line of metrics.jsonl as numbers by name: `step/loss` from {"event": "step", "loss": 1.0}."""
        event, step = line["event"], line["step"]
        measured = {name: value for name, value in line.items() if name not in {"event", "step"}}
        values = {
            name: float(value) for name, value in flat(measured, "/", event).items() if isinstance(value, int | float)
        }
        is_repeated = step <= self._logged.get(event, 0)
        for name, tracker in list(self._open.items()):
            if tracker.rewinds or not is_repeated:
                self._try(name, partial(tracker.log, step, values))

    def _start(self, name: str, tracker: type[Tracker], series: Series) -> None:
        self._open[name] = tracker(series)

    def _try(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # trackers depend on disks, servers and foreign code
            failed = self._open.pop(name, None)
            if failed is not None:
                with suppress(Exception):  # the first error is the one reported
                    failed.close(finished=False)
            cause = f"{type(error).__name__}: {error}"
            self._emit(Message(f"the tracker {name} failed; training continues without it: {cause}", "warning"))
