"""The model thread of a bundle: queries of concurrent requests in micro-batches, from a bounded queue."""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from recsys_cli.errors import DataError, RecsysError
from recsys_cli.serving.catalog import Catalog
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.problems import saturated
from recsys_cli.serving.http.settings import Batching
from recsys_cli.serving.query import NO_RECENT, Answer, Query, Recent
from recsys_cli.serving.recommender import Recommender

Kind = Literal["queries", "rows", "calls"]
ROWS = 50
"""Raw rows scored in the time of a query, before the first measurement."""
ARRIVED: ContextVar[float] = ContextVar("arrived")
"""Start of the request, as of `time.perf_counter`."""
_RESERVE = 0.2
"""Share of the time of a request for its answer on the way back, and for errors of the expectation."""
_KEPT = 0.9
"""Weight of the earlier measurements at a new one."""


class Work:
    """Work of one model thread. The event loop adds it, the model thread finishes and measures it.

    Args:
        seconds: Expected seconds of a query or a call before the first measurement.
        limit: Time of a request, in seconds.
    """

    def __init__(self, seconds: float, *, limit: float) -> None:
        self._limit = limit
        kinds: tuple[Kind, ...] = ("queries", "rows", "calls")
        self._added, self._finished = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
        self._measured: dict[Kind, tuple[float, float]] = dict.fromkeys(kinds, (seconds, 1))
        self._measured["rows"] = seconds, ROWS

    def add(self, kind: Kind, number: int) -> None:
        """Add queries, rows or a call that wait."""
        self._added[kind] += number

    def finish(self, kind: Kind, number: int) -> None:
        """Remove some, answered or not."""
        self._finished[kind] += number

    def measure(self, kind: Kind, number: int, seconds: float) -> None:
        """Measure answered ones; large batches and the latest ones count most."""
        before, measured = self._measured[kind]
        self._measured[kind] = before * _KEPT + seconds, measured * _KEPT + number

    def seconds_of(self, kind: Kind, number: int) -> float:
        """Return the expected seconds of some."""
        seconds, measured = self._measured[kind]
        return number * seconds / measured

    def is_late(self, seconds: float) -> bool:
        """Whether work with an end in some seconds is late for the request of this context."""
        left = ARRIVED.get(now := time.perf_counter()) + self._limit - now
        return seconds > left - self._limit * _RESERVE

    @property
    def waiting(self) -> float:
        """Expected seconds of all that waits, and of the batch under way."""
        return sum(self.seconds_of(kind, added - self._finished[kind]) for kind, added in self._added.items())


Call = Callable[[Recommender], Any]
_INVALID = (TypeError, ValueError, OverflowError, KeyError, pa.ArrowException)
"""Errors of the encoder about values of other types."""


@dataclass
class _Job:
    """Queries of one request, its raw rows to score with the feedback of their users, or a call; with number and future."""

    future: asyncio.Future[Any]
    kind: Kind
    number: int
    queries: Sequence[Query] = ()
    rows: Mapping[str, Sequence[Any]] | None = None
    recent: Recent = field(default_factory=dict)
    call: Call | None = None
    result: Any = None
    error: Exception | None = None
    arrived: float = field(default_factory=time.perf_counter)

    def share(self, batching: Batching) -> float:
        """Return the job's share of a full batch."""
        return self.number / {"queries": batching.size, "rows": batching.rows, "calls": math.inf}[self.kind]


class ModelThread:
    """Runs a recommender on a thread of its own.

    A batch starts with the oldest job, and takes what waits. While other requests are under way in the server, it waits for
    them up to the delay.

    No other thread uses the recommender. `work` receives what waits and the time it takes; a request that would wait too long
    is rejected.
    """

    def __init__(
        self,
        name: str,
        model: Recommender,
        batching: Batching,
        work: Work,
        metrics: Metrics,
        under_way: Callable[[], int],
    ) -> None:
        self._name, self._model, self._batching, self._under_way = name, model, batching, under_way
        self._batch_size = metrics.batch_size.labels(name)
        self._wait = metrics.queue_seconds.labels(name)
        self._rejected = metrics.rejected.labels(name)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._num_waiting = 0
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"model-{name}", daemon=True)
        self._thread.start()

    async def recommend(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries, in batches with those of other requests."""
        size = self._batching.size
        parts = [queries[start : start + size] for start in range(0, len(queries), size)]
        jobs = [self._job("queries", len(part), queries=part) for part in parts]
        return [answer for answers in await self._submit(jobs) for answer in answers]

    async def score(self, rows: Mapping[str, Sequence[Any]], recent: Recent = NO_RECENT) -> list[float]:
        """Score raw rows in a batch with those of other requests; see `Recommender.score`."""
        number = max(map(len, rows.values()), default=0)
        scores: list[float] = (await self._submit([self._job("rows", number, rows=rows, recent=recent)]))[0]
        return scores

    async def call(self, call: Call) -> Any:
        """Run a function of the recommender."""
        return (await self._submit([self._job("calls", 1, call=call)]))[0]

    async def change(self, change: Callable[[], Recommender]) -> None:
        """Replace the recommender by another one, made on the thread; a full queue does not reject it."""

        def changed(_: Recommender) -> None:
            self._model = change()

        await self._submit([self._job("calls", 1, call=changed)], rejected=False)

    @property
    def catalog(self) -> Catalog:
        """Items of the recommender; other threads may look up ids only."""
        return self._model.catalog

    async def close(self, *, grace: float = 0.0) -> None:
        """Finish what waits, for `grace` seconds also jobs of requests that have chosen this thread already, and end the thread."""
        await asyncio.sleep(grace)
        self.stop()
        await asyncio.to_thread(self._thread.join)

    def stop(self) -> None:
        """End the thread after what waits."""
        self._jobs.put(None)

    @staticmethod
    def _job(kind: Kind, number: int, **work: Any) -> _Job:
        return _Job(asyncio.get_running_loop().create_future(), kind, number, **work)

    async def _submit(self, jobs: Sequence[_Job], *, rejected: bool = True) -> list[Any]:
        """Queue the jobs of a request and wait for their results; the rest of them is dropped after an error.

        Raises:
            RequestError: The jobs may be rejected, and the queue is full or its work takes too long. An empty queue takes
                every request.
        """
        waiting = self._work.waiting
        needed = sum(self._work.seconds_of(job.kind, job.number) for job in jobs)
        is_full = self._num_waiting >= self._batching.queue or (waiting and self._work.is_late(waiting + needed))
        if rejected and is_full:
            self._rejected.inc()
            raise saturated(f"bundle {self._name}", waiting)
        self._num_waiting += 1
        try:
            for job in jobs:
                self._work.add(job.kind, job.number)
                self._jobs.put(job)
            if len(jobs) == 1:
                return [await jobs[0].future]
            return await asyncio.gather(*(job.future for job in jobs))
        finally:
            self._num_waiting -= 1
            for job in jobs:
                job.future.cancel()

    def _run(self) -> None:
        """Answer jobs until the end."""
        ended = False
        while not ended:
            collected, ended = self._collect()
            if jobs := [job for job in collected if not job.future.cancelled()]:
                started = time.perf_counter()
                for job in jobs:
                    self._wait.observe(started - job.arrived)
                self._answer(jobs)
                jobs[0].future.get_loop().call_soon_threadsafe(_deliver, jobs)
            for job in collected:
                self._work.finish(job.kind, job.number)

    def _collect(self) -> tuple[list[_Job], bool]:
        """Wait for a batch; the second value is whether the thread ends after it."""
        first = self._jobs.get()
        if first is None:
            return [], True
        jobs, full = [first], first.share(self._batching)
        deadline = time.perf_counter() + self._batching.delay
        while full < 1:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                left = deadline - time.perf_counter()
                if left <= 0 or self._under_way() <= len(jobs):
                    break
                try:
                    job = self._jobs.get(timeout=left)
                except queue.Empty:
                    break
            if job is None:
                return jobs, True
            jobs.append(job)
            full += job.share(self._batching)
        return jobs, False

    def _answer(self, jobs: Sequence[_Job]) -> None:
        """Set the results or errors of jobs; an invalid query fails alone."""
        if asking := [job for job in jobs if job.queries]:
            self._timed(self._recommend, asking)
        scoring: dict[frozenset[str], list[_Job]] = {}
        for job in jobs:
            if job.rows is None:
                continue
            if len(set(map(len, job.rows.values()))) == 1:  # columns of equal length
                scoring.setdefault(frozenset(job.rows), []).append(job)
            else:
                job.call = _scoring(job.rows, job.recent)
        for alike in scoring.values():
            self._timed(self._score, alike)
        for job in jobs:
            if job.call is not None:
                self._timed(self._call, [job])

    def _timed(self, answer: Callable[[Sequence[_Job]], None], jobs: Sequence[_Job]) -> None:
        """Answer jobs of one kind, and measure the time."""
        started = time.perf_counter()
        answer(jobs)
        self._work.measure(jobs[0].kind, sum(job.number for job in jobs), time.perf_counter() - started)

    def _call(self, jobs: Sequence[_Job]) -> None:
        """Run the calls of jobs."""
        for job in jobs:
            assert job.call is not None
            try:
                job.result = job.call(self._model)
            except Exception as error:
                job.error = error

    def _recommend(self, jobs: Sequence[_Job]) -> None:
        """Answer the queries of several jobs at once, or each job alone after an error."""
        queries = [query for job in jobs for query in job.queries]
        self._batch_size.observe(len(queries))
        try:
            answers = iter(self._model.recommend(queries))
            for job in jobs:
                job.result = [next(answers) for _ in job.queries]
        except Exception:
            for job in jobs:
                job.call = _recommending(job.queries)

    def _score(self, jobs: Sequence[_Job]) -> None:
        """Score the rows of several jobs with the same columns at once, or each job alone after an error."""
        parts = [job.rows for job in jobs if job.rows is not None]
        try:
            together = {name: [value for rows in parts for value in rows[name]] for name in parts[0]}
            recent = {user: one for job in jobs for user, one in job.recent.items()}
            scores = iter(self._model.score(together if len(parts) > 1 else parts[0], recent).tolist())
            for job in jobs:
                job.result = [next(scores) for _ in range(job.number)]
        except Exception:
            for job, rows in zip(jobs, parts, strict=True):
                job.call = _scoring(rows, job.recent)


def _recommending(queries: Sequence[Query]) -> Call:
    has_values = any(query.features for query in queries)
    return _checked(lambda model: model.recommend(queries)) if has_values else lambda model: model.recommend(queries)


def _scoring(rows: Mapping[str, Sequence[Any]], recent: Recent) -> Call:
    return _checked(lambda model: model.score(rows, recent).tolist())


def _checked(call: Call) -> Call:
    """Return a call with raw values, for which an error about their types is an error of the data."""

    def checked(model: Recommender) -> Any:
        try:
            return call(model)
        except RecsysError:
            raise
        except _INVALID as error:
            message = f"a value does not fit its column: {error}"
            raise DataError(message, hint="GET /v2/models/NAME lists the types of the columns") from error

    return checked


def _deliver(jobs: Sequence[_Job]) -> None:
    """Resolve futures on their loop."""
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
