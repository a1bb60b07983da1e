"""All trackers of a run together. Whatever happens to one of them is said once, and training goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from recsys_cli.events import Emit, Message
from recsys_cli.plugins import require_subclass
from recsys_cli.registry import TRACKERS, is_own, load, lookup
from recsys_cli.training.trackers.tracker import Series, Tracker, flat


def find(names: Sequence[str]) -> dict[str, type[Tracker]]:
    """Import trackers, so that one that is missing is known before anything begins.

    Raises:
        ConfigError: A tracker is not known or not trusted, or it is no `Tracker`.
        MissingExtraError: What it writes with is not installed.
    """
    return {name: _find(name) for name in names}


def _find(name: str) -> type[Tracker]:
    path = lookup(TRACKERS, name, what="tracker")
    found: type[Tracker] = load(path)
    if not is_own(path):
        require_subclass(found, Tracker, path)
    return found


class Trackers:
    """Feed the lines of metrics.jsonl to trackers.

    Args:
        classes: What `find` returned.
        emit: Is told of a tracker that failed.
    """

    def __init__(self, classes: Mapping[str, type[Tracker]], emit: Emit) -> None:
        self._classes = classes
        self._emit = emit
        self._open: dict[str, Tracker] = {}
        self._seen: Mapping[str, int] = {}

    @contextmanager
    def following(self, series: Series, *, seen: Mapping[str, int]) -> Iterator[None]:
        """Begin the series of a run, or go on with it; end it with the block.

        Args:
            series: What is going to be logged.
            seen: The last step of each event that was logged before a break: a run that was killed had gone further than
                its checkpoint.
        """
        self._seen = seen
        for name, tracker in self._classes.items():
            self._try(name, partial(self._begin, name, tracker, series))
        finished = False
        try:
            yield
            finished = True
        finally:
            while self._open:
                name, opened = self._open.popitem()
                self._try(name, partial(opened.close, finished=finished))

    def log(self, line: Mapping[str, Any]) -> None:
        """Hand a line of metrics.jsonl on, as numbers by name: those of {"event": "step", "loss": 1.0} are `step/loss`."""
        event, step = line["event"], line["step"]
        measured = {name: value for name, value in line.items() if name not in {"event", "step"}}
        values = {
            name: float(value) for name, value in flat(measured, "/", event).items() if isinstance(value, int | float)
        }
        known = step <= self._seen.get(event, 0)
        for name, tracker in list(self._open.items()):
            if tracker.rewinds or not known:
                self._try(name, partial(tracker.log, step, values))

    def _begin(self, name: str, tracker: type[Tracker], series: Series) -> None:
        self._open[name] = tracker(series)

    def _try(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # a tracker talks to disks and servers, and may be anybody's code
            failed = self._open.pop(name, None)
            if failed is not None:
                with suppress(Exception):  # it has said already what is wrong
                    failed.close(finished=False)
            what = f"{type(error).__name__}: {error}"
            self._emit(Message(f"the tracker {name} failed, and training goes on without it: {what}", "warning"))
