"""The parts of one worker: bundles, feedback, metrics, and queries made of request bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsys_cli.features.schema import Role
from recsys_cli.serving.feedback.event import Id
from recsys_cli.serving.http.answers import recommendations
from recsys_cli.serving.http.bodies import RecommendBody
from recsys_cli.serving.http.collection import exempt_from_collection
from recsys_cli.serving.http.desk import FeedbackDesk
from recsys_cli.serving.http.fleet import Deployment, Fleet
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.http.settings import Settings
from recsys_cli.serving.query import Answer, Query, RecentInteraction


@dataclass
class Load:
    """Number of requests under way."""

    under_way: int = 0


class Service:
    """Everything behind the routes of one worker.

    Args:
        settings: The settings.
        worker: Number of the worker.

    Attributes:
        is_ready: Whether the worker runs; not before the start, nor during the drain.
    """

    def __init__(self, settings: Settings, worker: int) -> None:
        self.settings, self.worker = settings, worker
        self.metrics, self.load = Metrics(), Load()
        self.desk = FeedbackDesk(settings, worker, self.metrics, upserted=self._upserted)
        self.fleet = Fleet(settings, self.metrics, lambda: self.load.under_way, self.desk.state)
        self.is_ready = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Take traffic."""
        await self.fleet.follow(self.desk.state)
        self.background(self.desk.follow())
        exempt_from_collection()
        self.is_ready = True

    async def close(self) -> None:
        """Finish what waits."""
        self.is_ready = False
        for task in self._tasks:
            task.cancel()
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
        return Query(
            user=body.user,
            history=body.history,
            recent=self.recent(body.user, deployment),
            features=body.features,
            k=body.k,
            candidates=body.candidates,
            exclude=(*body.exclude, *self.desk.state.hidden),
            exclude_seen=body.exclude_seen,
            where=body.where,
            diversity=body.diversity,
            explain=body.explain,
        )

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
