"""The upserted items of the feedback in the recommender of a bundle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from recsys_cli.serving.feedback.event import Event
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.serving.http.batching import ModelThread
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.item_upserts import ItemUpserts, ItemValues

_LOG = logging.getLogger("recsys.serve")


class ItemUpdates:
    """Replaces the recommender of a bundle after upserts: once for all upserts since the last time.

    Args:
        name: Name of the bundle.
        thread: The thread of its recommender, the only one that uses `upserts` after the start.
        upserts: Its recommenders with upserted items.
        metrics: Receives the numbers of applied and refused upserts.
    """

    def __init__(self, name: str, thread: ModelThread, upserts: ItemUpserts, metrics: Metrics) -> None:
        self._name, self._thread, self._upserts, self._metrics = name, thread, upserts, metrics
        self._applied = 0
        self._following = asyncio.Lock()
        self.columns = {column: str(kind) for column, kind in upserts.columns.items()}

    @property
    def why_not(self) -> str | None:
        """The reason against upserts; None if they are possible."""
        return self._upserts.why_not

    @property
    def about(self) -> dict[str, Any]:
        """The JSON values of `bodies.Upsertable`."""
        return {"possible": self.why_not is None, "reason": self.why_not, "columns": self.columns}

    async def check(self, events: Sequence[Event]) -> None:
        """Check values before they are written.

        Raises:
            DataError: A value does not fit.
        """
        items = [_values_of(event) for event in events]
        await self._thread.call(lambda _: self._upserts.check(items))

    def is_behind(self, state: FeedbackState) -> bool:
        """Whether the recommender lacks upserts of the feedback."""
        return self.why_not is None and state.num_upserts != self._applied

    async def follow(self, state: FeedbackState) -> None:
        """Bring the upserts of the feedback into the recommender."""
        if self.why_not is not None:
            return
        wanted = state.num_upserts  # not those that come meanwhile: they would hold up the request that waits
        async with self._following:
            while self._applied < wanted:
                number = state.num_upserts
                items = {item: _values_of(event) for item, event in state.upserts.items()}
                before = self._upserts.refused
                await self._thread.change(partial(self._upserts.recommender, items))
                refused = [text for item, text in self._upserts.refused.items() if item not in before]
                for text in refused:
                    _LOG.warning("bundle %s is without the features of %s", self._name, text)
                count = self._metrics.upserts.labels
                count(self._name, "refused").inc(len(refused))
                count(self._name, "applied").inc(number - self._applied - len(refused))
                self._applied = number


def _values_of(event: Event) -> ItemValues:
    return ItemValues(event.item, event.features or {}, event.title, event.at)
