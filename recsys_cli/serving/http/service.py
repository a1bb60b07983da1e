"""The parts of one worker: bundles, feedback, metrics, and queries made of request bodies."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import struct
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from recsys_cli.features.schema import Role
from recsys_cli.serving.feedback.log import FeedbackLog, Tail, current_files, worker_file
from recsys_cli.serving.feedback.state import Event, FeedbackState, Id, Kind
from recsys_cli.serving.http.bodies import RecommendBody
from recsys_cli.serving.http.fleet import Deployment, Fleet, exempt_from_collection
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.problems import RequestError, saturated
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.http.traffic import Traffic
from recsys_cli.serving.query import Answer, CatalogItem, Query, RecentInteraction, RecommendedItem

_MOST_WAITING = 4_096
_POLL = 0.01
_LOG = logging.getLogger("recsys.serve")


class FeedbackDesk:
    """Feedback for answers, with a log that survives the process; `upserted` is called after upserts of items by any worker.

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
        self._claims = settings.feedback / "claims.lock"
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
        if self._log.waiting.qsize() >= _MOST_WAITING:
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

    @asynccontextmanager
    async def claimed(self, keys: Iterable[object]) -> AsyncIterator[None]:
        """Hold up other writes of the same keys, of all workers, and apply those that are acknowledged."""
        with self._claims.open("ab") as file:
            # In order, so that no two requests wait for each other; few places, as the time grows with their square.
            for place in sorted({zlib.crc32(repr(key).encode()) % 512 for key in keys}):
                while True:
                    with suppress(BlockingIOError):
                        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, place, 1, 0))
                        break
                    await asyncio.sleep(_POLL / 10)
            self.refresh()
            yield

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


def recommendations(answer: Answer, deployment: Deployment, *, explain: bool) -> dict[str, Any]:
    """Return the JSON values of `bodies.Recommendations`."""
    return {
        **deployment.identity,
        "source": answer.source,
        "fallback": "popularity" if answer.source == "popularity" else None,
        "note": answer.note,
        "num_seen": answer.num_seen,
        "items": [_recommended(one, explain=explain) for one in answer.items],
    }


def _recommended(one: RecommendedItem, *, explain: bool) -> dict[str, Any]:
    values = {"item": one.item.id, "title": one.item.title, "score": one.score}
    if explain:
        values |= {"because": list(one.because), "features": _features(one.item)}
    return values


def catalog_item(item: CatalogItem, *, hidden: bool) -> dict[str, Any]:
    """Return the JSON values of `bodies.Item`."""
    return {"item": item.id, "title": item.title, "features": _features(item), "hidden": hidden}


def _features(item: CatalogItem) -> dict[str, list[str]]:
    return {name: [str(value) for value in values] for name, values in item.features.items()}


class Service:
    """Everything behind the routes of one worker.

    Attributes:
        under_way: Number of requests under way.
        is_ready: Whether the worker runs; not before the start, nor during the drain.
    """

    def __init__(self, settings: Settings, worker: int) -> None:
        self.settings, self.worker = settings, worker
        self.metrics, self.under_way = Metrics(), 0
        self.desk = FeedbackDesk(settings, worker, self.metrics, upserted=self._upserted)
        self.fleet = Fleet(settings, self.metrics, lambda: self.under_way, self.desk.state)
        self.traffic = Traffic(settings.feedback / f"traffic-{worker}.jsonl", self.metrics)
        self.is_ready = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Take traffic."""
        await self.fleet.follow(self.desk.state)
        self.background(self.desk.follow())
        self.background(self.traffic.keep())
        self.background(self.fleet.watch(lambda: self.background(self.fleet.reload())))
        exempt_from_collection()
        self.is_ready = True

    async def close(self) -> None:
        """Finish what waits."""
        self.is_ready = False
        for task in self._tasks:
            task.cancel()
        self.traffic.write()
        await self.fleet.close()
        await self.desk.close()

    @property
    def why_not_ready(self) -> str | None:
        """The reason against traffic; None if there is none."""
        if not self.is_ready:
            return "the server starts or ends"
        return None if self.desk.is_current else "the feedback of other workers cannot be read; the log has the reason"

    async def refresh(self) -> None:
        """Bring in what other workers have acknowledged, so that every answer after an acknowledgment shows it."""
        self.desk.refresh()
        if self.fleet.is_behind(self.desk.state):
            await self.fleet.follow(self.desk.state)

    def background(self, work: Any) -> None:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def deployment(self, name: str | None, user: object = None) -> Deployment:
        """Return a bundle by name, or that of a user."""
        return self.fleet.of_user(user) if name is None else self.fleet.named(name)

    async def recommend(self, body: RecommendBody) -> dict[str, Any]:
        """Answer a request."""
        deployment = self._deployment_of(body)
        return self._shown(body, (await self.answers(deployment, [self.query(body, deployment)]))[0], deployment)

    async def recommend_all(self, bodies: Sequence[RecommendBody]) -> list[dict[str, Any]]:
        """Answer requests in order; those of a bundle are admitted as one."""
        rows: dict[str, list[int]] = {}
        for row, body in enumerate(bodies):
            rows.setdefault(self._deployment_of(body).name, []).append(row)
        deployments = [self.fleet.named(name) for name in rows]
        queries = [
            [self.query(bodies[row], one) for row in own] for one, own in zip(deployments, rows.values(), strict=True)
        ]
        parts = [self.answers(one, own) for one, own in zip(deployments, queries, strict=True)]
        found = {}
        for one, own, answers in zip(deployments, rows.values(), await asyncio.gather(*parts), strict=True):
            for row, answer in zip(own, answers, strict=True):
                found[row] = self._shown(bodies[row], answer, one)
        return [found[row] for row in range(len(bodies))]

    def _shown(self, body: RecommendBody, answer: Answer, deployment: Deployment) -> dict[str, Any]:
        """Return the values of an answer, with the names of bundles that can use its history."""
        shown = recommendations(answer, deployment, explain=body.explain)
        if (
            body.bundle is None
            and answer.source == "popularity"
            and (able := self.fleet.folding_in(body.history or ()))
        ):
            shown["note"] += f"; with {' or '.join(able)} as the bundle of the request, the history counts"
        return shown

    def _deployment_of(self, body: RecommendBody) -> Deployment:
        """Return the bundle of a request: by its name, or of its user or history."""
        return self.deployment(body.bundle, body.user if body.user is not None else tuple(body.history or ()))

    async def answers(self, deployment: Deployment, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries by a bundle."""
        answers = await deployment.thread.recommend(queries)
        for answer in answers:
            self.metrics.answers.labels(deployment.name, answer.source).inc()
        return answers

    async def score(self, deployment: Deployment, columns: dict[str, list[Any]]) -> list[float]:
        """Score raw rows with the feedback of their users."""
        longest = max(map(len, columns.values()), default=0)
        self.check("rows", longest, self.settings.limits.batch)
        users = columns.get(deployment.user_input, ()) if deployment.takes_histories else ()
        distinct = {user for user in users if isinstance(user, int | float | str)}
        recent = {user: events for user in distinct if (events := self.recent(user, deployment))}
        if self.traffic.is_due:
            self.background(self.traffic.sample(deployment, columns))
        return await deployment.thread.score(columns, recent)

    def recent(self, user: Id | None, deployment: Deployment) -> tuple[RecentInteraction, ...]:
        """Return the feedback of a user for a bundle, oldest first."""
        if user is None:
            return ()
        own = self.fleet.canonical(Role.USER, user)
        return self.desk.recent(user if own is None else own, is_binary=deployment.about["label_mean"] is None)

    def query(self, body: RecommendBody, deployment: Deployment) -> Query:
        """Return the query of a body to a bundle, with the feedback of the user and without hidden items."""
        self.check("k", body.k, self.settings.limits.k)
        given = {name: value for name, value in body if name != "bundle"}
        exclude = (*body.exclude, *self.desk.state.hidden)
        if self.traffic.is_due:
            rows: dict[str, list[Any]] = {deployment.user_input: [body.user]}
            rows |= {name: [value] for name, value in body.features.items()}
            self.background(self.traffic.sample(deployment, rows))
        return Query(**given | {"recent": self.recent(body.user, deployment), "exclude": exclude})

    @staticmethod
    def check(name: str, number: int, most: int, *, hint: str = "ask for less, in several requests") -> None:
        """Check a bound.

        Raises:
            RequestError: The number is above it.
        """
        if number > most:
            raise RequestError(422, f"{name}: {number:,} is above the limit of {most:,}", hint)

    def _upserted(self) -> None:
        """Bring upserted items into the recommenders, also without a request that waits for it."""
        self.background(self.fleet.follow(self.desk.state))
