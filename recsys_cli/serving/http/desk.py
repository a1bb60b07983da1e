"""The feedback of a worker: durable appends, the events of other workers, and the state for answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from recsys_cli.serving.feedback.event import Event, Id, Kind
from recsys_cli.serving.feedback.files import current_files, worker_file
from recsys_cli.serving.feedback.log import FeedbackLog
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.serving.feedback.tail import Tail
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.problems import saturated
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.query import RecentInteraction

_MOST_WAITING = 4_096
_POLL = 0.01
_LOG = logging.getLogger("recsys.serve")


class FeedbackDesk:
    """Feedback for answers, with a log that survives the process.

    Args:
        settings: Folder and flushes.
        worker: Number of this worker, for its file.
        metrics: Receives acknowledged events.
        upserted: Called after upserts of items, of this worker or of another one.

    Attributes:
        is_current: Whether the events of other workers could be read at the last attempt.
    """

    def __init__(self, settings: Settings, worker: int, metrics: Metrics, *, upserted: Callable[[], None]) -> None:
        self.state, self._upserted = FeedbackState(), upserted
        self._worker, self._metrics, self._fsync = worker, metrics, settings.fsync
        self._positive_above = settings.positive_above
        own = worker_file(settings.feedback, worker)
        self._log = FeedbackLog(own, fsync=settings.fsync, state=self.state)
        self._tail = Tail(settings.feedback, own=own, state=self.state)
        self._tail.poll()
        self._alone = settings.workers == 1
        self._last, self._latest = 0, 0.0
        self.num_damaged, self.is_current = self._log.num_damaged, True
        assert own in current_files(settings.feedback)

    def recent(self, user: Id, *, is_binary: bool) -> tuple[RecentInteraction, ...]:
        """Return the feedback of a user, oldest first; `positive_above` makes labels for a model of binary ones."""
        above = self._positive_above if is_binary else None
        return tuple(
            RecentInteraction(
                one.item, one.label if above is None or one.label is None else float(one.label > above), one.time
            )
            for one in self.state.of_user(user)
        )

    def event(self, kind: Kind, **values: Id | float | Mapping[str, Any] | None) -> Event:
        """Return a new event; its order is later than that of all earlier events of this worker."""
        self._last = max(self._last + 256, time.time_ns() >> 8 << 8)
        return Event(kind, self._last | self._worker % 256, **values)  # type: ignore[arg-type]

    async def append(self, events: Sequence[Event]) -> None:
        """Write events durably, and then apply them.

        Raises:
            RequestError: Too many appends wait.
            RecsysError: The events are not in the log.
        """
        if self._log.num_waiting >= _MOST_WAITING:
            raise saturated("the feedback log", self._latest)
        started, loop = time.perf_counter(), asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def done(error: BaseException | None) -> None:
            loop.call_soon_threadsafe(self._acknowledge, written, events, error)

        self._log.append(b"".join(event.line() for event in events), done)
        await written
        self._latest = time.perf_counter() - started
        self._metrics.commit_seconds.observe(self._latest)

    def _acknowledge(self, written: asyncio.Future[None], events: Iterable[Event], error: BaseException | None) -> None:
        """Apply written events; a request that does not wait any more changes nothing about that."""
        if error is None:
            for event in events:
                self.state.apply(event)
            kinds = Counter(event.kind for event in events)
            for kind, number in kinds.items():
                self._metrics.feedback.labels(kind).inc(number)
            if "upsert" in kinds:
                self._upserted()
        if not written.done():
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

    async def follow(self) -> None:
        """Apply the events of other workers as they come."""
        while not self._alone:
            self.refresh()
            await asyncio.sleep(_POLL)

    def refresh(self) -> None:
        """Apply the events that other workers have acknowledged; a failure is logged once, and tried again."""
        if self._alone:
            return
        before = self.state.num_upserts
        try:
            self._tail.poll()
        except Exception:
            if self.is_current:
                _LOG.exception("the feedback of other workers cannot be read; this worker is not ready until it can")
            self.is_current = False
        else:
            if not self.is_current:
                _LOG.warning("the feedback of other workers is read again")
            self.is_current = True
        if self.state.num_upserts != before:
            self._upserted()

    async def close(self) -> None:
        """Flush and release the log."""
        await asyncio.to_thread(self._log.close)
