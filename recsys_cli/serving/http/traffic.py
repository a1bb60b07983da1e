"""Traffic of a worker for `recsys watch`: a JSON line an hour, of what the metrics count anyway and a sample of the requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from recsys_cli.errors import RecsysError
from recsys_cli.etl.calendar import Day, added
from recsys_cli.features.schema import UNSEEN
from recsys_cli.serving.http.fleet import Deployment
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.problems import RequestError
from recsys_cli.serving.recommender import Recommender

_HOUR, _EVERY, _ROWS = 3_600, 1.0, 256
"""Seconds of a line, seconds between two sampled requests, so that samples cost the same at any load, and rows of a sample."""
_ROUTES = {"/recommend", "/recommend/batch", "/score", "/v2/models/{name}/infer"}
_COUNTED = {
    "recsys_requests_total": "status",
    "recsys_answers_total": "source",
    "recsys_request_seconds_sum": "seconds",
}


class Traffic:
    """Counts of a worker's metrics since its last line, and sums over sampled rows of requests."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path, self._metrics, self._next = path, metrics, 0.0
        self._counts, self._from, self._sample = Counter[tuple[str, str]](), time.time(), Day(0, 0, 0.0, 0)

    @property
    def is_due(self) -> bool:
        """Whether the next request is sampled."""
        return time.monotonic() >= self._next

    async def sample(self, deployment: Deployment, rows: Mapping[str, Sequence[Any]]) -> None:
        """Add raw rows of a request; the model thread compares them with the vocabularies."""
        self._next = time.monotonic() + _EVERY
        part = {name: values[:_ROWS] for name, values in rows.items()}
        with suppress(RequestError, RecsysError, TypeError, ValueError):  # a full queue, or rows without an answer
            facts = await deployment.thread.call(lambda model: facts_of(model, part))
            self._sample = added([self._sample, facts])

    async def keep(self) -> None:
        """Write a line at the end of each hour of UTC."""
        while True:
            await asyncio.sleep(_HOUR - time.time() % _HOUR)
            self.write()

    def write(self) -> None:
        """Write the line of the time since the last one; after a failure the next one has it."""
        counts = Counter[tuple[str, str]]()
        for one in (one for metric in self._metrics.registry.collect() for one in metric.samples):
            if (label := _COUNTED.get(one.name)) and one.labels.get("route", "/score") in _ROUTES:
                counts[label, one.labels.get(label, "")] += one.value  # type: ignore[assignment]
        line: dict[str, Any] = {label: {} for label in _COUNTED.values()}
        for (label, value), number in (counts - self._counts).items():
            line[label][value] = number
        with suppress(OSError):
            with self._path.open("a") as file:
                file.write(json.dumps({**line, "from": self._from, "sample": asdict(self._sample)}) + "\n")
            self._counts, self._from, self._sample = counts, time.time(), Day(0, 0, 0.0, 0)


def facts_of(model: Recommender, rows: Mapping[str, Sequence[Any]]) -> Day:
    """Return the sums over raw rows: values outside the vocabularies, nulls, and numbers as of the interactions."""
    served = model.served
    plan, roles = served.fitted.plan, {served.user.name: "user", served.item.name: "item"}
    keys = {plan.raw_name(name) for name in (plan.user, plan.item, plan.timestamp) if name}
    sums, nulls = {}, {name: sum(one is None for one in values) for name, values in rows.items() if name not in keys}
    for name in nulls.keys() - set(map(plan.raw_name, plan.categorified)):
        if numbers := [float(one) for one in rows[name] if isinstance(one, int | float)]:
            sums[name] = (len(numbers), sum(numbers), sum(one**2 for one in numbers))
    coded = {name: one for name, one in model.rows.encoded(rows).items() if name in served.schema.names}
    unknown = {roles.get(name, name): int((one == UNSEEN).sum()) for name, one in coded.items()
               if isinstance(one, Tensor) and not one.is_floating_point()}  # fmt: skip
    return Day(0, max(map(len, rows.values()), default=0), 0.0, 0, unknown, nulls, sums)
